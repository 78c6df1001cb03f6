//! A guarded proxy between components of others: npm `oidc-provider` issues and exchanges tokens while its keys rotate, and PyPI `hypercorn`
//! serves a webhook over mutual TLS.
//!
//! ```text
//!   drive.mjs ──token──▶ skep proxy ──exchanged token──▶ backend.mjs
//!       │                 │      └──mTLS, signed──▶ hypercorn, webhook.py
//!       └──▶ oidc-provider ◀┘ discovery, keys, token exchange
//! ```

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use skep_testkit::pki::{Authority, Identity};

use super::{PATIENCE, Running, free, skep, spawn};
use crate::program::{self, wait_until};
use crate::{root, ui};

/// The packages, and the scripts that use them.
pub(super) const NPM: [&str; 2] = ["oidc-provider@9.13.3", "jose@6.2.17"];
pub(super) const PYPI: &str = "hypercorn==0.18.0";
const SCRIPTS: [&str; 3] = ["provider.mjs", "backend.mjs", "drive.mjs"];
/// For how long the clients may run, in seconds.
const LONGEST: &str = "120";
/// The secret of the proxy at the provider, URL-safe or not.
const SECRET: (&str, &str) = ("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET", "secret of proxy");

const POLICIES: [&str; 2] = [
    r#"permit(principal == Client::"ada", action, resource);"#,
    r#"permit(principal, action == Action::"call_tool", resource == Tool::"look");"#,
];

/// Puts the scripts where Node finds the packages.
pub(super) fn install(home: &Path) -> Result<()> {
    for script in SCRIPTS {
        fs::copy(root().join("xtask/peers/guarded").join(script), home.join(script))?;
    }
    Ok(())
}

/// Runs the clients. Returns what they did.
pub(super) fn run(home: &Path) -> Result<String> {
    ui::progress("oidc-provider, and a webhook behind hypercorn");
    let directory = home.join("guarded");
    fs::create_dir_all(&directory)?;
    let ports = [free()?, free()?, free()?, free()?];
    let [provider, backend, webhook, proxy] = ports;
    let issuer = format!("http://127.0.0.1:{provider}");
    let files = Files::write(&directory)?;

    let node = |script: &str, arguments: &[&str]| {
        let mut command = Command::new("node");
        command.arg(home.join(script)).args(arguments);
        spawn(&mut command, &directory.join(format!("{script}.log")))
    };
    let mut running: Vec<Running> = vec![
        node("provider.mjs", &[&provider.to_string()])?,
        node("backend.mjs", &[&backend.to_string(), &issuer])?,
        spawn(&mut files.hypercorn(home, webhook), &directory.join("hypercorn.log"))?,
    ];
    listens(&[provider, backend, webhook])?;
    let config = files.config(&issuer, backend, webhook, proxy);
    fs::write(directory.join("runconfig.json"), config.to_string())?;
    let mut command = Command::new(skep()?);
    command.args(["proxy", "run", "none"]).current_dir(&directory).env(SECRET.0, SECRET.1);
    running.push(spawn(&mut command, &directory.join("proxy.log"))?);
    listens(&[proxy])?;

    let mut clients = Command::new("timeout");
    clients.args([LONGEST, "node"]).arg(home.join("drive.mjs"));
    clients.args([&format!("http://127.0.0.1:{proxy}/mcp"), &issuer]);
    let did = program::capture(&mut clients);
    drop(running);
    did.map(|did| did.trim().to_owned()).with_context(|| format!("see the logs in `{}`", directory.display()))
}

fn listens(ports: &[u16]) -> Result<()> {
    for port in ports {
        wait_until("a component of the guarded proxy", PATIENCE, || {
            TcpStream::connect(("127.0.0.1", *port)).map(drop).context("not yet")
        })?;
    }
    Ok(())
}

/// The files that proxy and webhook share.
struct Files {
    authority: PathBuf,
    server: (PathBuf, PathBuf),
    client: (PathBuf, PathBuf),
    key: PathBuf,
}

impl Files {
    fn write(directory: &Path) -> Result<Self> {
        let put = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).map(|()| path)
        };
        let identity = |name: &str, identity: &Identity| {
            Ok::<_, std::io::Error>((
                put(&format!("{name}.crt"), &identity.certificate)?,
                put(&format!("{name}.key"), &identity.key)?,
            ))
        };
        let authority = Authority::generate()?;
        Ok(Self {
            authority: put("ca.crt", &authority.certificate())?,
            server: identity("server", &authority.issue("webhook", None, &["localhost"])?)?,
            client: identity("client", &authority.issue("proxy", None, &[])?)?,
            key: put("hmac", "shared by both")?,
        })
    }

    /// The webhook, which lets in only clients with a certificate.
    fn hypercorn(&self, home: &Path, port: u16) -> Command {
        let mut command = Command::new(home.join("python1/bin/hypercorn"));
        command.args([
            "--config",
            "hypercorn.toml",
            "--bind",
            &format!("127.0.0.1:{port}"),
            "--verify-mode",
            "CERT_REQUIRED",
        ]);
        command.arg("--certfile").arg(&self.server.0).arg("--keyfile").arg(&self.server.1);
        command.arg("--ca-certs").arg(&self.authority).arg("webhook:app");
        command.env("WEBHOOK_KEY", &self.key).current_dir(root().join("xtask/peers/guarded"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn config(&self, issuer: &str, backend: u16, webhook: u16, port: u16) -> Value {
        let hook = |path: &str| {
            json!({
                "name": "hypercorn", "url": format!("https://localhost:{webhook}{path}"), "failure_policy": "fail", "timeout": "10s",
                "hmac_secret_ref": self.key,
                "tls_config": {
                    "ca_bundle_path": self.authority, "client_cert_path": self.client.0, "client_key_path": self.client.1,
                },
            })
        };
        json!({
            "schema_version": "v0.1.0", "name": "guarded", "container_name": "guarded", "host": "127.0.0.1", "port": port,
            "transport": "streamable-http", "remote_url": format!("http://127.0.0.1:{backend}/mcp"),
            "oidc_config": { "Issuer": issuer, "Audience": "mcp", "AllowPrivateIP": true, "InsecureAllowHTTP": true },
            "authz_config": { "version": "1.0", "type": "cedarv1", "cedar": { "policies": POLICIES } },
            "token_exchange_config": {
                "token_url": format!("{issuer}/token"), "client_id": "proxy", "audience": "backend", "header_strategy": "replace",
            },
            "mutating_webhooks": [hook("/mutate")],
            "validating_webhooks": [hook("/validate")],
        })
    }
}
