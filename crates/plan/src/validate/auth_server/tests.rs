use serde_json::{Value, json};

use super::*;
use crate::validate::testing::changed;

fn read(config: &Value) -> EmbeddedAuthServer {
    serde_json::from_value(config.clone()).unwrap()
}

/// Changes of a valid server with the only thing that must be said about each; nothing for one that stays valid.
fn assert_rules(good: &Value, cases: &[(&str, Value, &str)]) {
    assert_eq!(embedded_auth_server(&read(good)), Ok(()), "{good}");
    for (place, value, expected) in cases {
        match embedded_auth_server(&read(&changed(good, place, value))) {
            Ok(()) => assert!(expected.is_empty(), "{place} {value}: nothing was found, not `{expected}`"),
            Err(found) => {
                assert!(!expected.is_empty() && found.to_string().starts_with(expected), "{place} {value}: {found}");
            }
        }
    }
}

fn secret() -> Value {
    json!({ "name": "s", "key": "k" })
}

fn oidc(name: &str) -> Value {
    json!({ "name": name, "type": "oidc", "oidcConfig": {
        "issuerUrl": "https://idp.example", "clientId": "c", "clientSecretRef": secret(), "redirectUri": "https://mcp.example/oauth/callback",
    }})
}

fn oauth2() -> Value {
    json!({ "name": "hub", "type": "oauth2", "oauth2Config": {
        "authorizationEndpoint": "https://hub.example/authorize",
        "tokenEndpoint": "https://hub.example/token",
        "clientId": "c",
        "userInfo": { "endpointUrl": "https://hub.example/me" },
    }})
}

fn good() -> Value {
    json!({ "issuer": "https://mcp.example", "upstreamProviders": [oidc("idp")] })
}

#[test]
fn the_issuer_is_a_bare_url_over_tls() {
    assert_rules(
        &good(),
        &[
            ("/issuer", json!("mcp.example"), "issuer: `mcp.example` is not a URL"),
            ("/issuer", json!("http://mcp.example"), "issuer: `http://mcp.example` must begin with `https://`"),
            ("/issuer", json!("http://localhost:8080"), ""),
            ("/issuer", json!("http://127.0.0.1:8080"), ""),
            ("/issuer", json!("http://[::1]:8080"), ""),
            ("/issuer", json!("https://mcp.example/"), "issuer: `https://mcp.example/` has a slash at its end"),
            ("/issuer", json!("https://mcp.example/a?b=c"), "issuer: `https://mcp.example/a?b=c` has a query"),
            ("/issuer", json!("https://mcp.example/a#b"), "issuer: `https://mcp.example/a#b` has a fragment"),
            ("/issuer", json!("https://me@mcp.example"), "issuer: `https://me@mcp.example` has a user"),
            ("/authorizationEndpointBaseUrl", json!("https://login.example"), ""),
            (
                "/authorizationEndpointBaseUrl",
                json!("http://login.example"),
                "authorizationEndpointBaseUrl: `http://login.example` must",
            ),
        ],
    );
    let plain = changed(&changed(&good(), "/issuer", &json!("http://mcp.example")), "/insecureAllowHTTP", &json!(true));
    assert_rules(&plain, &[]);
}

#[test]
fn keys_and_lifespans_are_within_bounds() {
    let lifespans = |field: &str, text: &str| json!({ field: text });
    assert_rules(
        &good(),
        &[
            (
                "/signingKeySecretRefs",
                json!([secret(), { "name": "", "key": "k" }]),
                "signingKeySecretRefs[1].name: it is empty",
            ),
            (
                "/signingKeySecretRefs",
                json!([secret(), secret(), secret(), secret(), secret(), secret()]),
                "signingKeySecretRefs: there are 6 keys",
            ),
            ("/hmacSecretRefs", json!([{ "name": "s", "key": "" }]), "hmacSecretRefs[0].key: it is empty"),
            ("/tokenLifespans", lifespans("accessTokenLifespan", "1m"), ""),
            (
                "/tokenLifespans",
                lifespans("accessTokenLifespan", "59s"),
                "tokenLifespans.accessTokenLifespan: `59s` is out of bounds",
            ),
            (
                "/tokenLifespans",
                lifespans("accessTokenLifespan", "25h"),
                "tokenLifespans.accessTokenLifespan: `25h` is out of bounds; choose from 1m0s to 24h0m0s",
            ),
            (
                "/tokenLifespans",
                lifespans("refreshTokenLifespan", "721h"),
                "tokenLifespans.refreshTokenLifespan: `721h` is out of bounds",
            ),
            (
                "/tokenLifespans",
                lifespans("authCodeLifespan", "29s"),
                "tokenLifespans.authCodeLifespan: `29s` is out of bounds",
            ),
            (
                "/tokenLifespans",
                lifespans("authCodeLifespan", "1 hour"),
                "tokenLifespans.authCodeLifespan: `1 hour` is not a duration",
            ),
            ("/cimd", json!({ "enabled": true, "cacheMaxSize": 0 }), "cimd.cacheMaxSize: `0` documents are too few"),
            (
                "/cimd",
                json!({ "enabled": true, "cacheFallbackTtl": "0s" }),
                "cimd.cacheFallbackTtl: `0s` is not above zero",
            ),
        ],
    );
}

#[test]
fn upstream_providers_are_distinct_and_complete() {
    let first = "/upstreamProviders/0";
    assert_rules(
        &good(),
        &[
            ("/upstreamProviders", json!([]), "upstreamProviders: there is no provider"),
            (
                "/upstreamProviders",
                json!([oidc("a"), oidc("a")]),
                "upstreamProviders[1].name: `a` is an earlier provider's too",
            ),
            ("/upstreamProviders", json!([oidc("a"), oidc("default")]), "upstreamProviders[1].name: `default` is kept"),
            ("/upstreamProviders", json!([oidc("default")]), ""),
            ("/upstreamProviders", json!([oidc("a"), oauth2()]), ""),
            (&format!("{first}/name"), json!("A_b"), "upstreamProviders[0].name: `A_b` is not a valid provider name"),
            (&format!("{first}/type"), json!("oauth2"), "upstreamProviders[0]: type `oauth2` takes oauth2Config"),
            (
                &format!("{first}/oauth2Config"),
                oauth2()["oauth2Config"].clone(),
                "upstreamProviders[0]: type `oidc` takes oidcConfig",
            ),
            (
                &format!("{first}/oidcConfig/issuerUrl"),
                json!("http://idp"),
                "upstreamProviders[0].oidcConfig.issuerUrl: `http://idp`",
            ),
            (
                &format!("{first}/oidcConfig/clientId"),
                json!(""),
                "upstreamProviders[0].oidcConfig.clientId: it is empty",
            ),
            (
                &format!("{first}/oidcConfig/clientSecretRef/key"),
                json!(""),
                "upstreamProviders[0].oidcConfig.clientSecretRef.key",
            ),
            (
                &format!("{first}/oidcConfig/redirectUri"),
                json!("/back"),
                "upstreamProviders[0].oidcConfig.redirectUri: `/back`",
            ),
            (
                &format!("{first}/oidcConfig/subjectClaim"),
                json!("a-b"),
                "upstreamProviders[0].oidcConfig.subjectClaim: `a-b`",
            ),
            (
                &format!("{first}/oidcConfig/additionalAuthorizationParams"),
                json!({ "prompt": "login", "state": "x" }),
                "upstreamProviders[0].oidcConfig.additionalAuthorizationParams: `state` is set by Skep itself",
            ),
            ("/primaryUpstreamProvider", json!("idp"), ""),
            ("/primaryUpstreamProvider", json!("other"), "primaryUpstreamProvider: there is no provider `other`"),
        ],
    );
}

#[test]
fn an_oauth2_provider_knows_one_client() {
    let hub = json!({ "issuer": "https://mcp.example", "upstreamProviders": [oauth2()] });
    let at = |field: &str| format!("/upstreamProviders/0/oauth2Config/{field}");
    let place = "upstreamProviders[0].oauth2Config";
    let registers = |registration: Value| {
        let mut config = oauth2()["oauth2Config"].clone();
        config.as_object_mut().unwrap().remove("clientId");
        config["dcrConfig"] = registration;
        config
    };
    let whole = "/upstreamProviders/0/oauth2Config";
    assert_rules(
        &hub,
        &[
            (
                &at("authorizationEndpoint"),
                json!("http://hub"),
                &format!("{place}.authorizationEndpoint: `http://hub` must begin"),
            ),
            (&at("tokenEndpoint"), json!("hub"), &format!("{place}.tokenEndpoint: `hub` is not a URL")),
            (
                &at("userInfo/endpointUrl"),
                json!("http://hub"),
                &format!("{place}.userInfo.endpointUrl: `http://hub` must begin"),
            ),
            (
                &at("userInfo/additionalHeaders"),
                json!({ "a b": "" }),
                &format!("{place}.userInfo.additionalHeaders: `a b`"),
            ),
            (&at("clientId"), Value::Null, &format!("{place}: exactly one of clientId and dcrConfig")),
            (
                &at("dcrConfig"),
                json!({ "discoveryUrl": "https://hub/d" }),
                &format!("{place}: exactly one of clientId and dcrConfig"),
            ),
            (
                &at("identityFromToken"),
                json!({ "subjectPath": "" }),
                &format!("{place}.identityFromToken.subjectPath: it is empty"),
            ),
            (
                &at("tokenResponseMapping"),
                json!({ "accessTokenPath": "" }),
                &format!("{place}.tokenResponseMapping.accessTokenPath"),
            ),
            (
                &at("additionalAuthorizationParams"),
                json!({ "nonce": "1" }),
                &format!("{place}.additionalAuthorizationParams: `nonce`"),
            ),
            (whole, registers(json!({ "discoveryUrl": "https://hub/d" })), ""),
            (
                whole,
                registers(json!({})),
                &format!("{place}.dcrConfig: exactly one of discoveryUrl and registrationEndpoint"),
            ),
            (
                whole,
                registers(json!({ "discoveryUrl": "https://h/d", "registrationEndpoint": "https://h/r" })),
                &format!("{place}.dcrConfig: exactly"),
            ),
            (
                whole,
                registers(json!({ "registrationEndpoint": "http://h/r" })),
                &format!("{place}.dcrConfig.registrationEndpoint: `http"),
            ),
            (
                whole,
                registers(json!({ "discoveryUrl": format!("https://h/{}", "d".repeat(2048)) })),
                &format!("{place}.dcrConfig.discoveryUrl: it has 2058"),
            ),
        ],
    );
    let mut secretive = registers(json!({ "discoveryUrl": "https://hub/d" }));
    secretive["clientSecretRef"] = secret();
    assert_rules(&hub, &[(whole, secretive, &format!("{place}.clientSecretRef: a client that registers itself"))]);
    let plain =
        changed(&changed(&hub, &at("insecureAllowHTTP"), &json!(true)), &at("tokenEndpoint"), &json!("http://hub"));
    assert_rules(&plain, &[]);
}

#[test]
fn an_identity_is_synthesized_only_without_user_info() {
    let hub = json!({ "issuer": "https://mcp.example", "upstreamProviders": [oidc("idp"), oauth2()] });
    assert!(!synthesizes_identity(&read(&hub)));
    let nameless = changed(&hub, "/upstreamProviders/1/oauth2Config/userInfo", &Value::Null);
    assert!(synthesizes_identity(&read(&nameless)));
    let reported =
        changed(&nameless, "/upstreamProviders/1/oauth2Config/identityFromToken", &json!({ "subjectPath": "user.id" }));
    assert!(!synthesizes_identity(&read(&reported)));
}

#[test]
fn a_redis_is_found_in_one_way() {
    let acl = json!({ "passwordSecretRef": secret() });
    let redis = json!({ "type": "redis", "redis": { "addr": "redis:6379", "aclUserConfig": acl } });
    let stored = changed(&good(), "/storage", &redis);
    let sentinel = |config: Value| json!({ "aclUserConfig": acl, "sentinelConfig": config });
    assert_rules(
        &stored,
        &[
            ("/storage/redis", Value::Null, "storage.redis: it is missing"),
            ("/storage", json!({ "type": "memory" }), ""),
            ("/storage/redis/addr", Value::Null, "storage.redis: exactly one of addr and sentinelConfig"),
            (
                "/storage/redis/sentinelConfig",
                json!({ "masterName": "m", "sentinelAddrs": ["s:1"] }),
                "storage.redis: exactly one of addr",
            ),
            ("/storage/redis", sentinel(json!({ "masterName": "m", "sentinelAddrs": ["s:1"] })), ""),
            ("/storage/redis", sentinel(json!({ "masterName": "m", "sentinelService": { "name": "s" } })), ""),
            (
                "/storage/redis",
                sentinel(json!({ "masterName": "m" })),
                "storage.redis.sentinelConfig: exactly one of sentinelAddrs",
            ),
            (
                "/storage/redis",
                sentinel(json!({ "masterName": "", "sentinelAddrs": ["s:1"] })),
                "storage.redis.sentinelConfig.masterName",
            ),
            ("/storage/redis/clusterMode", json!(true), ""),
            ("/storage/redis/dialTimeout", json!("0s"), "storage.redis.dialTimeout: `0s` is not above zero"),
            (
                "/storage/redis/aclUserConfig/passwordSecretRef/name",
                json!(""),
                "storage.redis.aclUserConfig.passwordSecretRef.name",
            ),
            (
                "/storage/redis/tls",
                json!({ "caCertSecretRef": { "name": "", "key": "k" } }),
                "storage.redis.tls.caCertSecretRef.name",
            ),
        ],
    );
}

#[test]
fn secrets_of_clients_travel_over_tls() {
    let client = json!({ "clientId": "d", "clientSecretRef": secret(), "scopes": ["s"], "audiences": ["a"] });
    let delegates = changed(&good(), "/delegateClients", &json!([client]));
    assert_rules(
        &delegates,
        &[
            ("/issuer", json!("http://localhost:1"), "issuer: clients with a secret show it there"),
            ("/delegateClients/0/clientId", json!(""), "delegateClients[0].clientId: it is empty"),
            (
                "/delegateClients/0/clientSecretRef/key",
                json!(""),
                "delegateClients[0].clientSecretRef.key: it is empty",
            ),
            ("/delegateClients/0/scopes", json!([]), "delegateClients[0].scopes: it is empty"),
            ("/delegateClients/0/audiences", json!([]), "delegateClients[0].audiences: it is empty"),
            (
                "/delegateClients",
                json!([client, client]),
                "delegateClients[1].clientId: `d` is an earlier client's too",
            ),
        ],
    );
    let local = changed(
        &changed(&delegates, "/issuer", &json!("http://localhost:1")),
        "/insecureAllowConfidentialOverLoopbackHTTP",
        &json!(true),
    );
    assert_rules(&local, &[]);
    let registers = changed(&good(), "/allowConfidentialClientRegistration", &json!(true));
    assert_rules(
        &registers,
        &[
            ("/insecureAllowHTTP", json!(true), "allowConfidentialClientRegistration: with insecureAllowHTTP"),
            ("/forceConfidentialRedirectUris", json!(["https://client.example/back"]), ""),
            (
                "/forceConfidentialRedirectUris",
                json!(["http://client.example/back"]),
                "forceConfidentialRedirectUris[0]: `http",
            ),
        ],
    );
    let forced = (
        "/forceConfidentialRedirectUris",
        json!(["https://c/b"]),
        "forceConfidentialRedirectUris: these clients must have a secret",
    );
    assert_rules(&good(), &[forced]);
}

#[test]
fn other_issuers_are_trusted_with_care() {
    let issuer = json!({ "issuerUrl": "https://other", "expectedAudience": "a", "allowedDelegateClients": ["d"] });
    let trusting = changed(&good(), "/trustedIssuers", &json!([issuer]));
    let at = |field: &str| format!("/trustedIssuers/0/{field}");
    assert_rules(
        &trusting,
        &[
            (
                "/trustedIssuers",
                json!([issuer, issuer]),
                "trustedIssuers[1].issuerUrl: `https://other` is trusted above",
            ),
            (&at("issuerUrl"), json!("http://other"), "trustedIssuers[0].issuerUrl: `http://other` must begin"),
            (&at("jwksUrl"), json!("http://other/keys"), "trustedIssuers[0].jwksUrl: `http://other/keys` must begin"),
            (&at("allowPrivateIPs"), json!(true), "trustedIssuers[0].allowPrivateIPs: it needs jwksUrl"),
            (&at("allowedDelegateClients"), json!(["*"]), ""),
            (
                &at("allowedDelegateClients"),
                json!(["*", "d"]),
                "trustedIssuers[0].allowedDelegateClients: the wildcard",
            ),
            (&at("allowedDelegateClients"), json!([]), "trustedIssuers[0].allowedDelegateClients: it is missing"),
            (&at("actorClaim"), json!("sub"), "trustedIssuers[0].actorClaim: `sub` has a meaning of its own"),
            (&at("actorClaim"), json!("azp"), ""),
            (&at("actorMatcher"), json!("claims.azp ="), "trustedIssuers[0].actorMatcher: `=` alone means nothing"),
            (&at("actorMatcher"), json!("claims.azp == 'x'"), ""),
            (&at("expectedAudience"), Value::Null, "trustedIssuers[0].expectedAudience: it is missing"),
        ],
    );
    let any = changed(&trusting, &at("allowedDelegateClients"), &json!(["*"]));
    assert_rules(&any, &[(&at("allowMayAct"), json!(true), "trustedIssuers[0].allowMayAct: with the wildcard")]);

    let bindings = json!([{ "subject": "system:serviceaccount:a:b", "allowedResources": ["https://mcp.example"] }]);
    let grant = json!({ "issuerUrl": "https://other", "jwtBearerGrant": { "maxAssertionAge": "5m", "subjectBindings": bindings } });
    let granting = changed(&good(), "/trustedIssuers", &json!([grant]));
    let twice = json!([bindings[0], bindings[0]]);
    assert_rules(
        &granting,
        &[
            (&at("allowedActors"), json!(["x"]), "trustedIssuers[0].expectedAudience: it is missing"),
            (&at("actorMatcher"), json!("true"), "trustedIssuers[0].expectedAudience: it is missing"),
            (
                &at("jwtBearerGrant/maxAssertionAge"),
                json!("0s"),
                "trustedIssuers[0].jwtBearerGrant.maxAssertionAge: `0s` is not above zero",
            ),
            (
                &at("jwtBearerGrant/subjectBindings"),
                json!([]),
                "trustedIssuers[0].jwtBearerGrant.subjectBindings: it is empty",
            ),
            (
                &at("jwtBearerGrant/subjectBindings"),
                twice,
                "trustedIssuers[0].jwtBearerGrant.subjectBindings[1].subject: `system:",
            ),
            (
                &at("jwtBearerGrant/subjectBindings/0/subject"),
                json!("a*"),
                "trustedIssuers[0].jwtBearerGrant.subjectBindings[0].subject: `a*`",
            ),
            (
                &at("jwtBearerGrant/subjectBindings/0/allowedResources"),
                json!([]),
                "trustedIssuers[0].jwtBearerGrant.subjectBindings[0].allowedR",
            ),
            (&at("jwtBearerGrant/acceptedAudiences"), json!(["http://mcp"]), ""),
            (
                &at("jwtBearerGrant/acceptedAudiences"),
                json!(["mcp"]),
                "trustedIssuers[0].jwtBearerGrant.acceptedAudiences[0]: `mcp`",
            ),
        ],
    );
}
