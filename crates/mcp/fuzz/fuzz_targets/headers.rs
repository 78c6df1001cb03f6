#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| skep_mcp::fuzzing::headers(data));
