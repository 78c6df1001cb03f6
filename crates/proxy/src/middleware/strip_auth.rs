//! Keeps the client's credentials from the server.

use std::sync::Arc;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use skep_runconfig::run_config::MiddlewareConfig;

use crate::chain::{ChainError, Context, Middleware, Pass, Step};
use crate::exchange::Exchange;

/// Removes headers of the client.
#[derive(Debug)]
pub(crate) struct StripAuth(&'static [HeaderName]);

pub(super) fn build(_: &MiddlewareConfig, _: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    super::some(StripAuth(&[AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION]))
}

// === impl StripAuth ===

impl StripAuth {
    /// One for chains that add credentials of the proxy's own: the client's token is not for the server.
    pub(crate) fn of_authorization() -> Self {
        Self(&[AUTHORIZATION])
    }
}

impl Middleware for StripAuth {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        for name in self.0 {
            exchange.head.headers.remove(name);
        }
        Step::NEXT
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use http::{HeaderMap, Request};
    use skep_net::Peer;
    use skep_runconfig::RunConfig;

    use super::*;
    use crate::chain::{Chain, Flow};
    use crate::exchange::{Content, Head};

    /// The headers of a request with a token, as they go to the server.
    async fn sent(config: &str, own: &[(&str, &str)]) -> HeaderMap {
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let context = Context { headers: own.collect::<BTreeMap<_, _>>(), ..Context::default() };
        let chain = Chain::new(&RunConfig::from_slice(config.as_bytes()).unwrap(), &context).unwrap();
        let request = Request::builder().header("authorization", "Bearer client").header("x-other", "1");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let head = Head::new(parts, Peer { address: ([127, 0, 0, 1], 1).into(), tls: false });
        let mut exchange = Exchange::new(head, Content::Opaque(Bytes::new()));
        assert!(matches!(chain.head(&mut exchange.head).await, Flow::Next));
        assert!(matches!(chain.message(&mut exchange).await, Flow::Next));
        exchange.head.headers
    }

    /// Where clients are not authenticated, their tokens are not meant for a server that the proxy itself authenticates to.
    #[tokio::test]
    async fn the_token_of_a_client_is_not_sent_beside_credentials_of_the_proxy() {
        for config in ["{}", r#"{"middleware_configs":[{"type":"mcp-parser","parameters":{}}]}"#] {
            let headers = sent(config, &[("x-api-key", "secret")]).await;
            assert!(!headers.contains_key("authorization") && headers["x-api-key"] == "secret", "{config}");
            assert_eq!(headers["x-other"], "1");
            assert_eq!(sent(config, &[]).await["authorization"], "Bearer client", "{config}");
            assert_eq!(sent(config, &[("authorization", "Bearer own")]).await["authorization"], "Bearer own");
        }
    }
}
