// The same server over stdio, of 2026-07-28 only: one of both eras is opened in the legacy one.
process.env.ONLY_MODERN = 'yes';
await import('./fixture.mjs');
