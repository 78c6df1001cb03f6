//! What does not fit together in the settings of the optimizer.

use skep_api::virtual_config::{EmbeddingProvider, Optimizer};

use super::duration;
use crate::text::check_header_name;

/// How many headers there may be, and how long each may be, in bytes.
const HEADERS: usize = 32;
const HEADER: usize = 8192;
/// Headers that are set for the service.
const OWN: [&str; 2] = ["authorization", "content-type"];

/// Everything that is wrong with them.
pub(super) fn problems(settings: &Optimizer) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |is_right: bool, problem: String| {
        if !is_right {
            problems.push(format!("optimizer.{problem}"));
        }
    };
    if let Some(url) = settings.embedding_service.as_deref().filter(|url| !url.is_empty()) {
        let is_web = url.starts_with("http://") || url.starts_with("https://");
        check(is_web, "embeddingService must begin with http:// or https://".to_owned());
        check(
            !is_web || is_url(url),
            "embeddingService is not a valid URL; write it like http://service:8080".to_owned(),
        );
    }
    check(
        duration(&settings.embedding_service_timeout).is_some(),
        "embeddingServiceTimeout must be a time such as 30s, and more than 0".to_owned(),
    );
    let is_openai = settings.embedding_provider == EmbeddingProvider::OpenAi;
    let has_model = settings.embedding_model.as_ref().is_some_and(|model| !model.is_empty());
    check(!is_openai || has_model, "embeddingModel is required for the provider openai".to_owned());
    let has_service = settings.embedding_service.as_ref().is_some_and(|url| !url.is_empty());
    check(!is_openai || has_service, "embeddingService is required for the provider openai".to_owned());
    check(
        is_openai || settings.embedding_headers.is_empty(),
        "embeddingHeaders go to an OpenAI-compatible service: set embeddingProvider to openai, or remove them"
            .to_owned(),
    );
    check(settings.embedding_headers.len() <= HEADERS, format!("embeddingHeaders has more than {HEADERS} headers"));
    for (name, value) in &settings.embedding_headers {
        let is_own = OWN.iter().any(|own| name.eq_ignore_ascii_case(own));
        let is_valid = check_header_name(name).is_ok() && !is_own;
        check(is_valid, format!("embeddingHeaders: `{name}` cannot be set; remove it"));
        let is_valid = !value.is_empty() && value.len() <= HEADER && is_header_value(value);
        check(is_valid, format!("embeddingHeaders: the value of `{name}` is not a valid header value"));
    }
    let most = settings.max_tools_to_return.unwrap_or(1);
    check((1..=50).contains(&most), "maxToolsToReturn must be between 1 and 50".to_owned());
    let is_within = |text: &Option<String>, most: f64| {
        let Some(text) = text else { return true };
        let number =
            text.parse::<f64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
        number.is_some_and(|number| (0.0..=most).contains(&number))
    };
    check(
        is_within(&settings.hybrid_search_semantic_ratio, 1.0),
        "hybridSearchSemanticRatio must be a number from 0 to 1".to_owned(),
    );
    check(
        is_within(&settings.semantic_distance_threshold, 2.0),
        "semanticDistanceThreshold must be a number from 0 to 2".to_owned(),
    );
    problems
}

/// Whether a text may be the value of a header (a field value of RFC 9110).
fn is_header_value(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'\t' || byte >= b' ' && byte != 0x7f)
}

/// Whether the service can be called at a URL: the client of the virtual server reads no other characters.
fn is_url(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !br#""<>\^`{|}"#.contains(&byte));
    is_plain && url::Url::parse(text).is_ok_and(|url| url.has_host())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(settings: &Value) -> Vec<String> {
        problems(&serde_json::from_value(settings.clone()).unwrap())
    }

    #[test]
    fn every_key_has_its_range() {
        for good in [
            json!({}),
            json!({ "maxToolsToReturn": 1, "hybridSearchSemanticRatio": "0", "semanticDistanceThreshold": "2" }),
            json!({ "maxToolsToReturn": 50, "hybridSearchSemanticRatio": "1.0", "semanticDistanceThreshold": ".5" }),
            json!({ "embeddingService": "http://e:80", "embeddingServiceTimeout": "1m" }),
            json!({ "embeddingProvider": "openai", "embeddingModel": "m", "embeddingService": "https://e/v1", "embeddingHeaders": { "X-Team": "a" } }),
        ] {
            assert_eq!(of(&good), Vec::<String>::new(), "{good}");
        }
        for (bad, part) in [
            (json!({ "maxToolsToReturn": 0 }), "maxToolsToReturn must be between 1 and 50"),
            (json!({ "maxToolsToReturn": 51 }), "maxToolsToReturn must be between 1 and 50"),
            (json!({ "hybridSearchSemanticRatio": "1.1" }), "hybridSearchSemanticRatio must be a number from 0 to 1"),
            (json!({ "hybridSearchSemanticRatio": "-1" }), "hybridSearchSemanticRatio must be"),
            (json!({ "hybridSearchSemanticRatio": "inf" }), "hybridSearchSemanticRatio must be"),
            (json!({ "semanticDistanceThreshold": "2.5" }), "semanticDistanceThreshold must be a number from 0 to 2"),
            (json!({ "embeddingServiceTimeout": "0s" }), "embeddingServiceTimeout must be a time"),
            (json!({ "embeddingService": "e:80" }), "embeddingService must begin with http:// or https://"),
            (json!({ "embeddingService": "http://" }), "embeddingService is not a valid URL"),
            (json!({ "embeddingService": "http://e:80/a b" }), "embeddingService is not a valid URL"),
            (json!({ "embeddingService": "http://e:80000" }), "embeddingService is not a valid URL"),
            (json!({ "embeddingProvider": "openai", "embeddingService": "http://e" }), "embeddingModel is required"),
            (json!({ "embeddingProvider": "openai", "embeddingModel": "m" }), "embeddingService is required"),
            (json!({ "embeddingHeaders": { "X-Team": "a" } }), "embeddingHeaders go to an OpenAI-compatible service"),
            (
                json!({ "embeddingProvider": "openai", "embeddingModel": "m", "embeddingService": "http://e", "embeddingHeaders": { "X-Team": "a\nb" } }),
                "embeddingHeaders: the value of `X-Team` is not a valid header value",
            ),
            (
                json!({ "embeddingProvider": "openai", "embeddingModel": "m", "embeddingService": "http://e", "embeddingHeaders": { "authorization": "a" } }),
                "embeddingHeaders: `authorization` cannot be set",
            ),
        ] {
            let found = of(&bad);
            assert!(found.len() == 1 && found[0].starts_with(&format!("optimizer.{part}")), "{bad}: {found:?}");
        }
    }
}
