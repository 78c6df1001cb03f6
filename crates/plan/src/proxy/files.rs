//! The files of a proxy.

use skep_api::kinds::{MCPOIDCConfigSpec, MCPTelemetryConfigSpec, PermissionProfileSource};

use super::ProxyContext;
use crate::error::PlanError;
use crate::pod::{Files, Mount};
use crate::{auth_server, names, run_config};

/// The longest name of a volume.
const LONGEST_VOLUME: usize = 63;

/// Files of one origin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileGroup {
    /// The RunConfig.
    RunConfig,
    /// The secrets of webhooks.
    Webhooks,
    /// The permission profile of a ConfigMap.
    PermissionProfile,
    /// The policies of the spec, or of a ConfigMap that it names.
    Authz,
    /// The certificate authorities of the identity provider.
    OidcCa,
    /// The certificate authorities of the telemetry collector.
    TelemetryCa,
    /// The keys of the embedded authorization server.
    AuthServer,
}

// === impl ProxyContext ===

impl ProxyContext<'_> {
    /// All files, in the order of the kind.
    pub(super) fn files(&self) -> Result<Files, PlanError> {
        let mut files = Files::default();
        for group in self.kind.files {
            self.add_files(*group, &mut files)?;
        }
        Ok(files)
    }

    fn add_files(&self, group: FileGroup, files: &mut Files) -> Result<(), PlanError> {
        let Self { me, spec, inputs, .. } = self;
        match group {
            FileGroup::RunConfig => {
                let name = names::run_config(me.name());
                files.add(Mount::config_map("runconfig", &name, None, "/etc/runconfig").in_run_config())
            }
            FileGroup::Webhooks => files.extend(inputs.webhooks.files.iter().cloned()),
            FileGroup::PermissionProfile => {
                let profile = spec.permission_profile;
                let profile = profile.filter(|profile| profile.source == PermissionProfileSource::ConfigMap);
                files.extend(profile.map(|profile| {
                    Mount::config_map("permission-profile", &profile.name, None, "/etc/toolhive/profiles")
                        .in_run_config()
                }))
            }
            FileGroup::Authz => files.extend(self.policies()),
            FileGroup::OidcCa => files.extend(oidc_ca(inputs.oidc)?),
            FileGroup::TelemetryCa => files.extend(telemetry_ca(inputs.telemetry)?),
            FileGroup::AuthServer => files.extend(inputs.auth_server.into_iter().flat_map(auth_server::files)),
        };
        Ok(())
    }

    fn policies(&self) -> Option<Mount> {
        let (map, key) = self.spec.authz_config?.config_map.as_ref().map_or_else(
            || (names::inline_authz(self.me.name()), "authz.json"),
            |map| (map.name.clone(), map.key.as_str()),
        );
        let item = Some((key, "authz.json"));
        Some(Mount::config_map("authz-config", &map, item, "/etc/toolhive/authz").in_run_config())
    }
}

/// The certificate authorities of an identity provider.
pub(crate) fn oidc_ca(oidc: Option<&MCPOIDCConfigSpec>) -> Result<Option<Mount>, PlanError> {
    let mount = oidc.and_then(|oidc| oidc.inline.as_ref()).and_then(run_config::ca_mount);
    mount.map(|(map, key, directory)| ca_bundle("oidc-ca-bundle", map, key, &directory)).transpose()
}

/// The certificate authorities of a telemetry collector.
pub(crate) fn telemetry_ca(telemetry: Option<&MCPTelemetryConfigSpec>) -> Result<Option<Mount>, PlanError> {
    let mount = telemetry.and_then(run_config::telemetry_ca);
    let directory = |map: &str| format!("/config/certs/otel/{map}");
    mount.map(|(map, key)| ca_bundle("otel-ca-bundle", map, key, &directory(map))).transpose()
}

fn ca_bundle(prefix: &str, map: &str, key: &str, directory: &str) -> Result<Mount, PlanError> {
    let volume = format!("{prefix}-{map}");
    if volume.len() > LONGEST_VOLUME {
        let most = LONGEST_VOLUME - 1 - prefix.len();
        let problem = format!("the name of ConfigMap `{map}` is too long for a volume; use at most {most} characters");
        return Err(PlanError::InvalidSpec(problem));
    }
    Ok(Mount::config_map(&volume, map, Some((key, key)), directory))
}
