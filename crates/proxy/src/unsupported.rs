//! What this build of the data plane cannot do yet: the one table. The operator refuses plans that need it, or reports that it is not in
//! force; a proxy that is asked for it all the same refuses to start rather than leave a guard out.

use skep_runconfig::feature::Feature;

/// The features that no proxy and no virtual server implements.
pub const UNSUPPORTED: &[Feature] = &[
    Feature::CodeMode,
    Feature::CrossAppAccess,
    Feature::EmbeddedAuthServer,
    Feature::OnBehalfOf,
    Feature::UpstreamSwap,
];
