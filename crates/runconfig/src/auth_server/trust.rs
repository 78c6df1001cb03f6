//! The issuers and delegates that an authorization server trusts besides its upstreams.

use crate::document::document;

document! {
    /// A client that may exchange a user's token for one of its own.
    pub struct DelegateClient {
        /// The client.
        pub client_id: String = always "client_id",
        /// A file with its secret.
        pub client_secret_file: String = if_set "client_secret_file",
        /// The environment variable with its secret.
        pub client_secret_env_var: String = if_set "client_secret_env_var",
        /// Scopes that it may request.
        pub scopes: Vec<String> = if_set "scopes",
        /// Resources that it may request tokens for.
        pub audiences: Vec<String> = if_set "audiences",
    }
}

document! {
    /// Another issuer whose tokens can be exchanged.
    pub struct TrustedIssuer {
        /// The issuer.
        pub issuer_url: String = always "issuer_url",
        /// The audience that its tokens must carry.
        pub expected_audience: String = if_set "expected_audience",
        /// Where its keys are. Empty, they are discovered.
        pub jwks_url: String = if_set "jwks_url",
        /// Whether it may be reached without TLS.
        pub insecure_allow_http: bool = if_set "insecure_allow_http",
        /// Whether its URLs may lead to private addresses.
        pub allow_private_ips: bool = if_set "allow_private_ips",
        /// The claim that names the actor.
        pub actor_claim: String = if_set "actor_claim",
        /// The actors that are allowed.
        pub allowed_actors: Vec<String> = if_set "allowed_actors",
        /// An expression that decides which actors are allowed.
        pub actor_matcher: String = if_set "actor_matcher",
        /// The delegate clients that may bring its tokens.
        pub allowed_delegate_clients: Vec<String> = if_set "allowed_delegate_clients",
        /// Whether a token may name its own actor.
        pub allow_may_act: bool = if_set "allow_may_act",
        /// Its tokens as a grant of their own.
        pub jwt_bearer_grant: Option<JwtBearerGrant> = if_set "jwt_bearer_grant",
    }
}

document! {
    /// Tokens of an issuer as a grant of their own (RFC 7523).
    pub struct JwtBearerGrant {
        /// How old a token may be, as a Go duration.
        pub max_assertion_age: String = if_set "max_assertion_age",
        /// Which subject may reach what.
        pub subject_bindings: Vec<SubjectBinding> = if_set "subject_bindings",
        /// The audiences that a token may carry.
        pub accepted_audiences: Vec<String> = if_set "accepted_audiences",
    }
}

document! {
    /// What a subject may reach.
    pub struct SubjectBinding {
        /// The subject.
        pub subject: String = always "subject",
        /// The resources that it may request tokens for.
        pub allowed_resources: Vec<String> = if_set "allowed_resources",
    }
}
