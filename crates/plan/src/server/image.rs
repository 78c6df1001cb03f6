//! The image of a server: one for containers, unless the server runs on one machine.

use crate::error::PlanError;
use crate::status::Status;
use crate::world::Site;

/// Refuses an image that names a program of the host (`exec://`, `npx://`, …) where servers are containers, and says so in the
/// condition `ImageValidated`. A proxy would run it in its own container, with its service account and its secrets.
pub(super) fn check(status: &mut Status, image: &str, site: Site) -> Option<PlanError> {
    // No reference of a container image has a scheme, whichever it is.
    let (scheme, _) = image.split_once("://").filter(|_| site == Site::Cluster)?;
    let message = format!(
        "spec.image: `{image}` is not a container image: `{scheme}://` names a program or package that runs as a process of the \
         host, which only `skep run` does; build a container image of the server and name that"
    );
    let error = PlanError::InvalidSpec(message);
    status.condition("ImageValidated", false, "ImageValidationFailed", error.to_string());
    Some(error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skep_api::resource::KindName;

    use crate::plan::{Verdict, plan};
    use crate::validate::testing::{Surroundings, resource};
    use crate::world::Site;

    /// Item 17-10.
    #[test]
    fn host_process_images_are_refused_in_a_cluster() {
        let mut surroundings = Surroundings::default();
        for image in ["exec://sh", "npx://@a/b@1", "uvx://a", "go://a", "docker://a", "EXEC://sh", "exec://"] {
            let me = resource(KindName::MCPServer, "s", &json!({ "image": image }));
            surroundings.settings.site = Site::Cluster;
            let refused = plan(&me, &surroundings.world());
            assert!(matches!(&refused.verdict, Verdict::Refuse(why) if why.contains(image)), "{:?}", refused.verdict);
            assert!(refused.children.is_empty());
            let condition = refused.status.find("ImageValidated").unwrap();
            assert!(condition.is_false() && condition.message.contains("build a container image"), "{condition:?}");
            assert!(refused.status.find("Ready").unwrap().is_false());
            surroundings.settings.site = Site::Machine;
            assert_eq!(plan(&me, &surroundings.world()).verdict, Verdict::Apply, "{image}");
        }
        surroundings.settings.site = Site::Cluster;
        for image in ["a", "registry.example:5000/a/b:1", "a@sha256:00", "exec:1"] {
            let me = resource(KindName::MCPServer, "s", &json!({ "image": image }));
            let plan = plan(&me, &surroundings.world());
            assert_eq!(plan.verdict, Verdict::Apply, "{image}");
            assert!(plan.status.find("ImageValidated").is_none());
        }
    }
}
