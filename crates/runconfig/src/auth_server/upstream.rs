//! The providers that users of an authorization server really sign in to.

use std::collections::BTreeMap;

use crate::document::document;

document! {
    /// A provider.
    pub struct Upstream {
        /// Its name.
        pub name: String = if_set "name",
        /// How it speaks: `oidc` or `oauth2`.
        pub kind: String = always "type",
        /// Its settings for `oidc`.
        pub oidc_config: Option<UpstreamOidc> = if_set "oidc_config",
        /// Its settings for `oauth2`.
        pub oauth2_config: Option<UpstreamOAuth2> = if_set "oauth2_config",
    }
}

document! {
    /// A provider that speaks OpenID Connect.
    pub struct UpstreamOidc {
        /// Its issuer.
        pub issuer_url: String = always "issuer_url",
        /// Our client there.
        pub client_id: String = always "client_id",
        /// A file with that client's secret.
        pub client_secret_file: String = if_set "client_secret_file",
        /// The environment variable with that client's secret.
        pub client_secret_env_var: String = if_set "client_secret_env_var",
        /// Where it sends people back to.
        pub redirect_uri: String = if_set "redirect_uri",
        /// Scopes to request.
        pub scopes: Vec<String> = if_set "scopes",
        /// Another place that says who the caller is.
        pub userinfo_override: Option<UserInfo> = if_set "userinfo_override",
        /// Further parameters of the authorization request.
        pub additional_authorization_params: BTreeMap<String, String> = if_set "additional_authorization_params",
        /// The claim that names the caller, where it is not `sub`.
        pub subject_claim: String = if_set "subject_claim",
        /// Whether its URLs may lead to private addresses.
        pub allow_private_ips: bool = if_set "allow_private_ips",
        /// Whether it may be reached without TLS.
        pub insecure_allow_http: bool = if_set "insecure_allow_http",
    }
}

document! {
    /// A provider that speaks OAuth 2.
    pub struct UpstreamOAuth2 {
        /// Its authorization endpoint.
        pub authorization_endpoint: String = always "authorization_endpoint",
        /// Its token endpoint.
        pub token_endpoint: String = always "token_endpoint",
        /// Our client there. Empty when it registers itself.
        pub client_id: String = if_set "client_id",
        /// A file with that client's secret.
        pub client_secret_file: String = if_set "client_secret_file",
        /// The environment variable with that client's secret.
        pub client_secret_env_var: String = if_set "client_secret_env_var",
        /// Where it sends people back to.
        pub redirect_uri: String = if_set "redirect_uri",
        /// Scopes to request.
        pub scopes: Vec<String> = if_set "scopes",
        /// Where it says who the caller is.
        pub userinfo: Option<UserInfo> = if_set "userinfo",
        /// Where its token response has what, if not in the usual places.
        pub token_response_mapping: Option<TokenResponseMapping> = if_set "token_response_mapping",
        /// Where its token response says who the caller is.
        pub identity_from_token: Option<IdentityFromToken> = if_set "identity_from_token",
        /// Further parameters of the authorization request.
        pub additional_authorization_params: BTreeMap<String, String> = if_set "additional_authorization_params",
        /// How our client registers itself.
        pub dcr_config: Option<DynamicRegistration> = if_set "dcr_config",
        /// Whether its URLs may lead to private addresses.
        pub allow_private_ips: bool = if_set "allow_private_ips",
        /// Whether it may be reached without TLS.
        pub insecure_allow_http: bool = if_set "insecure_allow_http",
    }
}

document! {
    /// A place that says who the caller is.
    pub struct UserInfo {
        /// Its URL.
        pub endpoint_url: String = always "endpoint_url",
        /// `GET` or `POST`.
        pub http_method: String = if_set "http_method",
        /// Headers on the request.
        pub additional_headers: BTreeMap<String, String> = if_set "additional_headers",
        /// Which members of the answer say what.
        pub field_mapping: Option<UserInfoFields> = if_set "field_mapping",
    }
}

document! {
    /// Which members of an answer say who the caller is, tried in order.
    pub struct UserInfoFields {
        /// The subject.
        pub subject_fields: Vec<String> = if_set "subject_fields",
        /// The name.
        pub name_fields: Vec<String> = if_set "name_fields",
        /// The address.
        pub email_fields: Vec<String> = if_set "email_fields",
    }
}

document! {
    /// Where a token response has what.
    pub struct TokenResponseMapping {
        /// The access token.
        pub access_token_path: String = always "access_token_path",
        /// The scopes.
        pub scope_path: String = if_set "scope_path",
        /// The refresh token.
        pub refresh_token_path: String = if_set "refresh_token_path",
        /// How long the token lasts.
        pub expires_in_path: String = if_set "expires_in_path",
    }
}

document! {
    /// Where a token response says who the caller is.
    pub struct IdentityFromToken {
        /// The subject.
        pub subject_path: String = always "subject_path",
        /// The name.
        pub name_path: String = if_set "name_path",
        /// The address.
        pub email_path: String = if_set "email_path",
    }
}

document! {
    /// How our client registers itself (RFC 7591).
    pub struct DynamicRegistration {
        /// Where the provider says how.
        pub discovery_url: String = if_set "discovery_url",
        /// The registration endpoint, instead of that.
        pub registration_endpoint: String = if_set "registration_endpoint",
        /// A file with a token that lets us register.
        pub initial_access_token_file: String = if_set "initial_access_token_file",
        /// The environment variable with a token that lets us register.
        pub initial_access_token_env_var: String = if_set "initial_access_token_env_var",
        /// What we say we are.
        pub software_id: String = if_set "software_id",
        /// A signed statement of what we are.
        pub software_statement: String = if_set "software_statement",
    }
}
