//! The delegates and other issuers that the embedded authorization server trusts, beside the users who sign in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::SecretKeyRef;
use crate::schema::{Rule, atomic, is_false, rules};

const DELEGATE_CLIENT_RULES: &[Rule] = &[Rule {
    cel: "self.clientSecretRef.name != '' && self.clientSecretRef.key != ''",
    message: "clientSecretRef needs a name and a key: a delegate client always has a secret",
}];

const TRUSTED_ISSUER_RULES: &[Rule] = &[
    Rule {
        cel: "!has(self.allowedDelegateClients) || !('*' in self.allowedDelegateClients) || size(self.allowedDelegateClients) == 1",
        message: "in allowedDelegateClients the wildcard * stands alone: remove the other entries, or the wildcard",
    },
    Rule {
        cel: "!(has(self.allowedDelegateClients) && '*' in self.allowedDelegateClients && has(self.allowMayAct) && self.allowMayAct)",
        message: "allowedDelegateClients with the wildcard * and allowMayAct would let any client act for anybody: name the clients, or turn allowMayAct off",
    },
    Rule {
        cel: "!has(self.actorClaim) || !(self.actorClaim in ['sub', 'iss', 'aud', 'exp', 'iat', 'nbf', 'jti', 'name', 'email', 'scope', 'scp', 'may_act'])",
        message: "actorClaim names a claim that has a meaning of its own: choose one that only says who acts, such as act or azp",
    },
    Rule {
        cel: "!(has(self.allowPrivateIPs) && self.allowPrivateIPs) || (has(self.jwksUrl) && self.jwksUrl != '')",
        message: "allowPrivateIPs needs jwksUrl: discovery never goes to private addresses",
    },
    Rule {
        cel: "has(self.expectedAudience) || (has(self.jwtBearerGrant) && !(has(self.actorClaim) && self.actorClaim != '') && !(has(self.actorMatcher) && self.actorMatcher != '') && !(has(self.allowMayAct) && self.allowMayAct) && !(has(self.allowedActors) && size(self.allowedActors) > 0))",
        message: "expectedAudience is missing: only an issuer with jwtBearerGrant and no actor settings can do without",
    },
    Rule {
        cel: "!(has(self.expectedAudience) || (has(self.actorClaim) && self.actorClaim != '') || (has(self.actorMatcher) && self.actorMatcher != '') || (has(self.allowMayAct) && self.allowMayAct)) || (has(self.allowedDelegateClients) && size(self.allowedDelegateClients) > 0)",
        message: "allowedDelegateClients is missing: with expectedAudience, actorClaim, actorMatcher or allowMayAct, name the clients that may exchange this issuer's tokens",
    },
];

const JWT_BEARER_RULES: &[Rule] = &[
    Rule {
        // A pattern would cost more than the API server allows; a text that is not a duration is refused as well.
        cel: "duration(self.maxAssertionAge) > duration('0s')",
        message: "maxAssertionAge must be a duration above zero, such as 5m",
    },
    Rule {
        cel: "self.subjectBindings.all(one, self.subjectBindings.exists_one(other, other.subject == one.subject))",
        message: "subjectBindings names a subject twice: put its resources into one entry",
    },
];

/// A client that may exchange a user's token for one of its own, and so act for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(DELEGATE_CLIENT_RULES))]
pub struct DelegateClient {
    /// The client's id.
    #[schemars(length(min = 1, max = 256))]
    pub client_id: String,
    /// The Secret key with the client's secret.
    pub client_secret_ref: SecretKeyRef,
    /// Scopes that it may ask for.
    #[schemars(length(min = 1, max = 10), inner(length(min = 1, max = 256)), transform = atomic)]
    pub scopes: Vec<String>,
    /// Audiences that it may ask for.
    #[schemars(length(min = 1, max = 10), inner(length(min = 1, max = 2048)), transform = atomic)]
    pub audiences: Vec<String>,
}

/// Another issuer whose tokens can be exchanged here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(TRUSTED_ISSUER_RULES))]
pub struct TrustedIssuer {
    /// The issuer's URL.
    #[schemars(length(min = 1, max = 2048))]
    pub issuer_url: String,
    /// Where its keys are. Left out, they are found by discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub jwks_url: Option<String>,
    /// The audience that its tokens must carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub expected_audience: Option<String>,
    /// The clients that may exchange its tokens; `*` alone for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 256)), transform = atomic)]
    pub allowed_delegate_clients: Vec<String>,
    /// The claim that says who acts for the subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub actor_claim: Option<String>,
    /// An expression over the token's claims that must be true for the actor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub actor_matcher: Option<String>,
    /// The only actors that may act.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 256)), transform = atomic)]
    pub allowed_actors: Vec<String>,
    /// Whether a `may_act` claim in the token names who may act.
    #[serde(default)]
    pub allow_may_act: bool,
    /// Whether `jwksUrl` may lead to a private address.
    #[serde(default, rename = "allowPrivateIPs", skip_serializing_if = "is_false")]
    pub allow_private_ips: bool,
    /// Whether the issuer may be reached without TLS. For development only.
    #[serde(default, rename = "insecureAllowHTTP", skip_serializing_if = "is_false")]
    pub insecure_allow_http: bool,
    /// Lets the issuer's assertions be traded for tokens directly (RFC 7523).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt_bearer_grant: Option<JwtBearerGrant>,
}

/// Which assertions of an issuer can be traded for tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(JWT_BEARER_RULES))]
pub struct JwtBearerGrant {
    /// How old an assertion may be, such as `5m`.
    pub max_assertion_age: String,
    /// Which subjects get tokens for what.
    #[schemars(length(min = 1, max = 50), transform = atomic)]
    pub subject_bindings: Vec<SubjectBinding>,
    /// Audiences that an assertion may carry beside this server's issuer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 50),
        inner(length(min = 1, max = 2048), regex(pattern = r"^https?://[^[:space:]]+$")),
        transform = atomic
    )]
    pub accepted_audiences: Vec<String>,
}

/// What one subject may get a token for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectBinding {
    /// The subject, word for word; there are no wildcards.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[^*]+$"))]
    pub subject: String,
    /// The resources that it may get a token for.
    #[schemars(
        length(min = 1, max = 50),
        inner(length(min = 1, max = 2048), regex(pattern = r"^https?://[^[:space:]]+$")),
        transform = atomic
    )]
    pub allowed_resources: Vec<String>,
}
