//! The service that computes vectors: Hugging Face's Text Embeddings Inference, or one that speaks OpenAI's API.

use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use serde::Deserialize;
use serde_json::{Value, json};
use skep_api::virtual_config::{EmbeddingProvider, Optimizer as OptimizerConfig};
use skep_net::body::{Limit, collect};
use skep_net::{Addresses, Body, Client};

use super::index::Vector;

/// How many texts are sent at once: to a TEI service that does not say, at most to any, and to an OpenAI-compatible one.
const TEI_BATCH: usize = 32;
const LARGEST_BATCH: usize = 1024;
const OPENAI_BATCH: usize = 256;
/// The longest response, in bytes, and the longest vector.
const RESPONSE: usize = 32 * 1024 * 1024;
const DIMENSIONS: usize = 16 * 1024;
/// How many bytes a second it must bring.
const PACE: usize = 1024;

/// The service.
#[derive(Debug)]
pub(super) struct EmbeddingService {
    client: Client,
    base: String,
    protocol: Protocol,
    headers: HeaderMap,
    timeout: Duration,
}

#[derive(Debug)]
enum Protocol {
    Tei,
    OpenAi { model: String },
}

/// What the service computes with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Model {
    /// Its name. Vectors of different models say nothing about each other.
    pub(super) id: String,
    /// How many texts it takes at once.
    pub(super) batch: usize,
}

/// Why a text has no vector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EmbeddingError {
    /// The service cannot be reached, or breaks off.
    #[error("the embedding service cannot be reached: {0}")]
    Unreachable(String),
    /// It does not answer in time.
    #[error("the embedding service did not answer within {0:?}")]
    Timeout(Duration),
    /// It refuses.
    #[error("the embedding service answered with status {0}")]
    Status(u16),
    /// It answers something else.
    #[error("the response of the embedding service cannot be read: {0}")]
    Malformed(&'static str),
    /// Its model changed twice while vectors were computed.
    #[error("the model of the embedding service changed while vectors were computed")]
    ModelChanged,
}

/// Why there is no service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbeddingConfigError {
    /// Its URL.
    #[error("optimizer.embeddingService: `{0}` is not a URL that begins with http:// or https://")]
    Url(String),
    /// A header. The value may be a secret.
    #[error("optimizer.embeddingHeaders: `{0}` is not a header with a valid value")]
    Header(String),
    /// The key.
    #[error("the environment variable `OPENAI_API_KEY` is not a valid header value")]
    Key,
}

#[derive(Deserialize)]
struct Info {
    model_id: String,
    #[serde(default)]
    max_client_batch_size: Option<usize>,
}

#[derive(Deserialize)]
struct OpenAiResponse {
    #[serde(default)]
    model: Option<String>,
    data: Vec<OpenAiVector>,
}

#[derive(Deserialize)]
struct OpenAiVector {
    index: usize,
    embedding: Vec<f32>,
}

// === impl EmbeddingService ===

impl EmbeddingService {
    pub(super) fn new(
        config: &OptimizerConfig,
        url: &str,
        key: Option<&str>,
        addresses: Addresses,
        timeout: Duration,
    ) -> Result<Self, EmbeddingConfigError> {
        let base = url.trim_end_matches('/').to_owned();
        let is_valid = base.starts_with("http://") || base.starts_with("https://");
        if !is_valid || base.parse::<Uri>().map_or(true, |uri| uri.host().is_none()) {
            return Err(EmbeddingConfigError::Url(url.to_owned()));
        }
        let mut headers = HeaderMap::new();
        let protocol = match config.embedding_provider {
            EmbeddingProvider::Tei => Protocol::Tei,
            EmbeddingProvider::OpenAi => {
                for (name, value) in &config.embedding_headers {
                    let wrong = || EmbeddingConfigError::Header(name.clone());
                    let mut value = HeaderValue::from_str(value).map_err(|_invalid| wrong())?;
                    value.set_sensitive(true);
                    headers.insert(HeaderName::try_from(name).map_err(|_invalid| wrong())?, value);
                }
                // Secrets often end in a line break.
                if let Some(key) = key.map(str::trim) {
                    let bearer = HeaderValue::from_str(&format!("Bearer {key}"));
                    let mut bearer = bearer.map_err(|_invalid| EmbeddingConfigError::Key)?;
                    bearer.set_sensitive(true);
                    headers.insert(AUTHORIZATION, bearer);
                }
                Protocol::OpenAi { model: config.embedding_model.clone().unwrap_or_default() }
            }
        };
        // Behind those of the configuration, which they win over.
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let client = Client::new(skep_net::client::Options { addresses, ..Default::default() });
        Ok(Self { client, base, protocol, headers, timeout })
    }

    /// What tells its vectors from those of any other service, beside its model.
    pub(super) fn identity(&self) -> [&str; 3] {
        match &self.protocol {
            Protocol::Tei => ["tei", &self.base, ""],
            Protocol::OpenAi { model } => ["openai", &self.base, model],
        }
    }

    /// Whether it is asked for its model. The model of the others stands in the configuration.
    pub(super) fn says_its_model(&self) -> bool {
        matches!(self.protocol, Protocol::Tei)
    }

    /// How long it may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The model that it computes with now, as far as it says so before it computes.
    pub(super) async fn model(&self) -> Result<Model, EmbeddingError> {
        match &self.protocol {
            Protocol::Tei => {
                let info = self.send(Method::GET, "/info", None).await?;
                let info: Info =
                    serde_json::from_slice(&info).map_err(|_| EmbeddingError::Malformed("/info has no model_id"))?;
                let batch = info.max_client_batch_size.unwrap_or(TEI_BATCH);
                Ok(Model { id: info.model_id, batch: batch.clamp(1, LARGEST_BATCH) })
            }
            Protocol::OpenAi { model } => Ok(Model { id: model.clone(), batch: OPENAI_BATCH }),
        }
    }

    /// The vectors of texts, and the model if the response names it.
    pub(super) async fn embed(&self, texts: &[&str]) -> Result<(Vec<Vector>, Option<String>), EmbeddingError> {
        match &self.protocol {
            Protocol::Tei => {
                let body = json!({ "inputs": texts, "truncate": true });
                let response = self.send(Method::POST, "/embed", Some(&body)).await?;
                Ok((of_tei(&response, texts.len())?, None))
            }
            Protocol::OpenAi { model } => {
                let body = json!({ "model": model, "input": texts, "encoding_format": "float" });
                let response = self.send(Method::POST, "/embeddings", Some(&body)).await?;
                of_openai(&response, texts.len())
            }
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<bytes::Bytes, EmbeddingError> {
        let uri = format!("{}{path}", self.base);
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::new(Body::full(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().map_err(|_invalid| EmbeddingError::Unreachable("its URL".to_owned()))?;
        *request.headers_mut() = self.headers.clone();
        let sent = async {
            let unreachable = |error: &dyn std::fmt::Display| EmbeddingError::Unreachable(error.to_string());
            let (parts, body) = self.client.send(request).await.map_err(|error| unreachable(&error))?.into_parts();
            if !parts.status.is_success() {
                return Err(EmbeddingError::Status(parts.status.as_u16()));
            }
            let limit = Limit { bytes: RESPONSE, idle: self.timeout, pace: PACE };
            collect(body, limit).await.map_err(|error| unreachable(&error))
        };
        tokio::time::timeout(self.timeout, sent).await.unwrap_or(Err(EmbeddingError::Timeout(self.timeout)))
    }
}

/// The vectors in a response of TEI: an array of arrays, in the order of the texts.
fn of_tei(response: &[u8], count: usize) -> Result<Vec<Vector>, EmbeddingError> {
    let vectors: Vec<Vec<f32>> =
        serde_json::from_slice(response).map_err(|_| EmbeddingError::Malformed("it is not an array of vectors"))?;
    checked(vectors, count)
}

/// The vectors in a response of OpenAI's API, which has them in any order.
fn of_openai(response: &[u8], count: usize) -> Result<(Vec<Vector>, Option<String>), EmbeddingError> {
    let OpenAiResponse { model, mut data } =
        serde_json::from_slice(response).map_err(|_| EmbeddingError::Malformed("it has no list of embeddings"))?;
    data.sort_by_key(|vector| vector.index);
    if data.iter().enumerate().any(|(index, vector)| vector.index != index) {
        return Err(EmbeddingError::Malformed("the embeddings are not one for each text"));
    }
    Ok((checked(data.into_iter().map(|vector| vector.embedding).collect(), count)?, model))
}

fn checked(vectors: Vec<Vec<f32>>, count: usize) -> Result<Vec<Vector>, EmbeddingError> {
    if vectors.len() != count {
        return Err(EmbeddingError::Malformed("the embeddings are not one for each text"));
    }
    if vectors.iter().any(|vector| vector.is_empty() || vector.len() > DIMENSIONS) {
        return Err(EmbeddingError::Malformed("a vector is empty or too long"));
    }
    Ok(vectors.into_iter().map(Vector::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(provider: EmbeddingProvider) -> OptimizerConfig {
        OptimizerConfig {
            embedding_provider: provider,
            embedding_model: Some("m".to_owned()),
            ..serde_json::from_value(json!({})).unwrap()
        }
    }

    fn service(
        config: &OptimizerConfig,
        url: &str,
        key: Option<&str>,
    ) -> Result<EmbeddingService, EmbeddingConfigError> {
        EmbeddingService::new(config, url, key, Addresses::Machine, Duration::from_secs(1))
    }

    #[test]
    fn responses_are_read_and_checked() {
        let vectors = of_tei(b"[[0.5, 1], [2, 3]]", 2).unwrap();
        assert_eq!(vectors, [Vector::from([0.5, 1.0]), Vector::from([2.0, 3.0])]);
        let shuffled = br#"{"model":"m2","data":[{"index":1,"embedding":[2]},{"index":0,"embedding":[1]}]}"#;
        assert_eq!(of_openai(shuffled, 2).unwrap(), (vec![[1.0].into(), [2.0].into()], Some("m2".to_owned())));
        for (response, count) in [("[[1]]", 2), ("[[]]", 1), ("{}", 1), ("[[\"x\"]]", 1), ("[1]", 1)] {
            assert!(of_tei(response.as_bytes(), count).is_err(), "{response}");
        }
        for response in [r#"{"data":[{"index":1,"embedding":[2]}]}"#, r#"{"data":[]}"#, "[]"] {
            assert!(of_openai(response.as_bytes(), 1).is_err(), "{response}");
        }
    }

    #[test]
    fn headers_never_override_those_of_the_protocol_and_there_is_no_authorization_without_a_key() {
        let mut config = config(EmbeddingProvider::OpenAi);
        config.embedding_headers =
            [("Content-Type".to_owned(), "text/plain".to_owned()), ("X-Team".to_owned(), "a".to_owned())].into();
        let open = service(&config, "http://e/v1/", None).unwrap();
        assert_eq!(
            (&open.headers[CONTENT_TYPE], &open.headers["x-team"]),
            (&"application/json".parse().unwrap(), &"a".parse().unwrap())
        );
        assert!(!open.headers.contains_key(AUTHORIZATION));
        assert_eq!(open.base, "http://e/v1");
        config.embedding_headers.insert("Authorization".to_owned(), "mine".to_owned());
        let keyed = service(&config, "http://e", Some("k")).unwrap();
        assert_eq!(keyed.headers[AUTHORIZATION], "Bearer k");
        assert!(!format!("{keyed:?}").contains("Bearer k"), "the key is in no log");
    }

    #[test]
    fn what_cannot_be_a_service_is_refused_without_its_secrets() {
        let mut config = config(EmbeddingProvider::OpenAi);
        for url in ["", "ftp://e", "http://", "e:80"] {
            assert_eq!(service(&config, url, None).unwrap_err(), EmbeddingConfigError::Url(url.to_owned()), "{url}");
        }
        assert_eq!(service(&config, "http://e", Some("a\nb")).unwrap_err(), EmbeddingConfigError::Key);
        config.embedding_headers = [("X-Key".to_owned(), "secret\n".to_owned())].into();
        let error = service(&config, "http://e", None).unwrap_err().to_string();
        assert!(error.contains("`X-Key`") && !error.contains("secret"), "{error}");
    }
}
