//! What a client may send in the place of a token.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use http::Response;
use serde_json::{Value, json};
use skep_net::Body;

use super::forge::{ISSUER, Issuer, SHARED, authenticated, encode, pem, signed};
use super::{Attack, Row};
use crate::web::{Got, backend};

/// Another issuer, with keys of its own at an address of its own.
pub(super) struct Attacker {
    issuer: Issuer,
    url: String,
    heard: Arc<Mutex<Vec<Got>>>,
}

impl Attacker {
    pub(super) async fn start() -> Result<Self> {
        let (issuer, heard) = (Issuer::generate()?, Arc::default());
        let keys = issuer.published().to_string();
        let answer = move |_: &Got| Response::new(Body::full(keys.clone()));
        let address = backend("127.0.0.1:0".parse()?, Arc::new(answer), Arc::clone(&heard)).await?;
        Ok(Self { issuer, url: format!("http://{address}"), heard })
    }

    pub(super) fn is_unheard(&self) -> bool {
        self.heard.lock().unwrap().is_empty()
    }
}

pub(super) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// What is accepted, beside which the rest is refused.
pub(super) fn accepted(issuer: &Issuer) -> Vec<String> {
    let audiences = issuer.sign(&Issuer::but("aud", json!(["other", "mcp"])));
    let rsa = issuer.sign_rsa(&json!({ "alg": "RS256", "kid": "rsa" }));
    [issuer.valid(), audiences, rsa].iter().map(|token| bearer(token)).collect()
}

pub(super) fn rows(issuer: &Issuer, attacker: &Attacker) -> Vec<Row> {
    let mut tokens = algorithms(issuer);
    tokens.extend(confused_keys(issuer));
    tokens.extend(key_ids(issuer));
    tokens.extend(keys_of_others(issuer, attacker));
    tokens.extend(encodings(issuer));
    tokens.extend(payloads(issuer));
    tokens.extend(claims(issuer));
    let mut rows: Vec<Row> = tokens
        .into_iter()
        .map(|(what, token)| Row { what, attack: Attack::Head(bearer(&token)), status: 401 })
        .collect();
    rows.extend(heads(issuer));
    rows
}

type Token = (String, String);

fn cut(text: &str, at: usize) -> (&str, &str) {
    text.split_at(at)
}

/// JSON with as much white space that its encoding is padded.
fn padded(json: &str) -> String {
    let spaces = (1..3).find(|spaces| !(json.len() + spaces).is_multiple_of(3)).unwrap();
    let encoded = URL_SAFE.encode(format!("{json}{}", " ".repeat(spaces)));
    assert!(encoded.ends_with('='));
    encoded
}

fn header(more: Value) -> Value {
    let mut header = json!({ "alg": "ES256", "kid": "ec", "typ": "JWT" });
    for (name, value) in more.as_object().unwrap() {
        header[name] = value.clone();
    }
    header
}

/// Tokens whose header names another algorithm than that of their signature.
fn algorithms(issuer: &Issuer) -> Vec<Token> {
    let unsigned = |algorithm: &str| {
        format!("{}.", signed(&json!({ "alg": algorithm, "kid": "ec" }), Issuer::claims().to_string()))
    };
    let mut rows: Vec<Token> = ["none", "None", "NONE", "nOnE", ""]
        .iter()
        .map(|one| (format!("alg `{one}` without a signature"), unsigned(one)))
        .collect();
    for algorithm in [
        json!("none"),
        json!(null),
        json!(7),
        json!(["ES256"]),
        json!("es256"),
        json!("ES256 "),
        json!("ES384"),
        json!("ES512"),
        json!("RS256"),
        json!("PS256"),
        json!("EdDSA"),
        json!("HS256"),
        json!("dir"),
        json!("ES256K"),
    ] {
        let header = header(json!({ "alg": algorithm }));
        rows.push((
            format!("alg {algorithm} over an elliptic signature"),
            issuer.sign_as(&header, Issuer::claims().to_string()),
        ));
    }
    let mut nothing = header(json!({}));
    nothing.as_object_mut().unwrap().remove("alg");
    rows.push(("no alg".to_owned(), issuer.sign_as(&nothing, Issuer::claims().to_string())));
    for (algorithm, key_id) in
        [("RS256", "ec"), ("RS384", "rsa"), ("RS512", "rsa"), ("PS256", "rsa"), ("ES256", "rsa"), ("HS256", "rsa")]
    {
        let token = issuer.sign_rsa(&json!({ "alg": algorithm, "kid": key_id }));
        rows.push((format!("alg {algorithm} and key `{key_id}` over an RS256 signature"), token));
    }
    rows
}

/// Tokens with a message authentication code whose secret is public.
fn confused_keys(issuer: &Issuer) -> Vec<Token> {
    let (rsa, pkcs1) = issuer.rsa_der();
    let (elliptic_pem, rsa_pem) = (pem("PUBLIC KEY", &issuer.der()), pem("PUBLIC KEY", &rsa));
    let secrets: Vec<(&str, &str, Vec<u8>)> = vec![
        ("ec", "the elliptic key as PEM", elliptic_pem.clone().into_bytes()),
        ("ec", "the elliptic key as PEM without its last line feed", elliptic_pem.trim_end().as_bytes().to_vec()),
        ("ec", "the elliptic key as DER", issuer.der()),
        ("ec", "the elliptic key as a point", issuer.point().to_vec()),
        ("ec", "the elliptic key as a JWK", issuer.jwk().to_string().into_bytes()),
        ("rsa", "the RSA key as PEM", rsa_pem.clone().into_bytes()),
        ("rsa", "the RSA key as PEM without its last line feed", rsa_pem.trim_end().as_bytes().to_vec()),
        ("rsa", "the RSA key as DER", rsa),
        ("rsa", "the RSA key as PKCS #1", pkcs1.clone()),
        ("rsa", "the RSA key as PEM of PKCS #1", pem("RSA PUBLIC KEY", &pkcs1).into_bytes()),
        ("rsa", "the RSA key as a JWK", issuer.rsa_jwk().to_string().into_bytes()),
        ("rsa", "the modulus", issuer.rsa_jwk()["n"].as_str().unwrap().as_bytes().to_vec()),
        ("ec", "the whole set", issuer.published().to_string().into_bytes()),
        ("oct", "a secret that the set has by mistake", SHARED.to_vec()),
        ("ec", "nothing", Vec::new()),
    ];
    let mut rows = Vec::new();
    for (key_id, what, secret) in &secrets {
        rows.push((format!("HS256 with {what} as its secret"), authenticated("HS256", key_id, secret)));
    }
    for algorithm in ["HS384", "HS512"] {
        rows.push((
            format!("{algorithm} with the RSA key as its secret"),
            authenticated(algorithm, "rsa", rsa_pem.as_bytes()),
        ));
    }
    rows
}

fn key_ids(issuer: &Issuer) -> Vec<Token> {
    let mut rows = Vec::new();
    for key_id in [
        json!(null),
        json!(0),
        json!(true),
        json!(["ec"]),
        json!({ "kid": "ec" }),
        json!(""),
        json!("EC"),
        json!("ec "),
        json!("ec\u{0}"),
        json!("rsa"),
        json!("oct"),
        json!("unknown"),
        json!("../../../../etc/passwd"),
        json!("/dev/null"),
        json!("file:///proc/self/environ"),
        json!("http://127.0.0.1:1/keys"),
        json!("ec' OR '1'='1"),
        json!("ec;id"),
        json!("k".repeat(8_000)),
    ] {
        let shown: String = key_id.to_string().chars().take(60).collect();
        rows.push((
            format!("kid {shown}"),
            issuer.sign_as(&header(json!({ "kid": key_id })), Issuer::claims().to_string()),
        ));
    }
    let mut nothing = header(json!({}));
    nothing.as_object_mut().unwrap().remove("kid");
    rows.push(("no kid".to_owned(), issuer.sign_as(&nothing, Issuer::claims().to_string())));
    for critical in [json!(["exp"]), json!([]), json!(["b64"]), json!("exp"), json!(null)] {
        let header = header(json!({ "crit": critical, "b64": false }));
        rows.push((format!("crit {critical}"), issuer.sign_as(&header, Issuer::claims().to_string())));
    }
    rows
}

/// Tokens of a client that has keys, but not the issuer's.
fn keys_of_others(issuer: &Issuer, attacker: &Attacker) -> Vec<Token> {
    let (claims, url) = (Issuer::claims().to_string(), &attacker.url);
    let certificate = STANDARD.encode(attacker.issuer.der());
    let mut rows = vec![
        ("another issuer's key of the same kid".to_owned(), attacker.issuer.valid()),
        (
            "another issuer's token of the same kid".to_owned(),
            attacker.issuer.sign(&Issuer::but("iss", json!("https://evil.example"))),
        ),
        (
            "another issuer's RSA key of the same kid".to_owned(),
            attacker.issuer.sign_rsa(&json!({ "alg": "RS256", "kid": "rsa" })),
        ),
    ];
    for (name, value) in [
        ("jku", json!(format!("{url}/keys"))),
        ("x5u", json!(format!("{url}/certificate"))),
        ("jwk", attacker.issuer.jwk()),
        ("x5c", json!([certificate])),
        ("x5t", json!(encode("thumbprint"))),
    ] {
        let known = header(json!({ name: value }));
        rows.push((
            format!("a key in the header: {name}, with the kid of the issuer"),
            attacker.issuer.sign_as(&known, &claims),
        ));
        let unknown = header(json!({ name: value, "kid": "theirs" }));
        rows.push((
            format!("a key in the header: {name}, with a kid of its own"),
            attacker.issuer.sign_as(&unknown, &claims),
        ));
    }
    let theirs = header(json!({ "kid": format!("{url}/keys#ec") }));
    rows.push(("a kid that is the address of other keys".to_owned(), attacker.issuer.sign_as(&theirs, &claims)));
    let valid = issuer.valid();
    let (_, signature) = valid.rsplit_once('.').unwrap();
    let changed = signed(&header(json!({})), Issuer::but("sub", json!("root")).to_string());
    rows.push(("the signature of another token".to_owned(), format!("{changed}.{signature}")));
    rows.push(("a signature of zeros".to_owned(), format!("{changed}.{}", encode([0; 64]))));
    rows.push(("an elliptic signature as DER".to_owned(), issuer.sign_as_der()));
    rows
}

/// Tokens that are cut, or encoded in another way.
fn encodings(issuer: &Issuer) -> Vec<Token> {
    // Its payload has characters that differ between the alphabets.
    let claims = Issuer::but("name", json!("\u{3ff}\u{3ff}\u{3ff}>>>???\u{fff}")).to_string();
    let valid = issuer.sign_payload(&claims);
    let parts: Vec<&str> = valid.split('.').collect();
    let (head, payload, signature) = (parts[0], parts[1], parts[2]);
    let whole = header(json!({})).to_string();
    let standard = |text: &str| STANDARD.encode(text).trim_end_matches('=').to_owned();
    assert_ne!(standard(&claims), encode(&claims));
    let rows = [
        ("nothing but dots", "..".to_owned()),
        ("one dot", ".".to_owned()),
        ("a header alone", head.to_owned()),
        ("a header and a payload", format!("{head}.{payload}")),
        ("an empty signature", format!("{head}.{payload}.")),
        ("an empty payload", format!("{head}..{signature}")),
        ("an empty header", format!(".{payload}.{signature}")),
        ("a fourth part", format!("{valid}.{signature}")),
        ("five parts, as an encrypted token has", format!("{head}.{payload}.{signature}.{payload}.{signature}")),
        ("a trailing dot", format!("{valid}.")),
        ("a signature without its last character", cut(&valid, valid.len() - 1).0.to_owned()),
        ("half a signature", cut(&valid, valid.len() - signature.len() / 2).0.to_owned()),
        ("a signature with one character more", format!("{valid}A")),
        ("a signature twice", format!("{valid}{signature}")),
        ("half a payload", format!("{head}.{}.{signature}", cut(payload, payload.len() / 2).0)),
        ("a padded signature", format!("{valid}==")),
        ("a padded payload", issuer.sign_parts(format!("{head}.{}", padded(&claims)))),
        ("a padded header", issuer.sign_parts(format!("{}.{payload}", padded(&whole)))),
        ("a payload in the standard alphabet", issuer.sign_parts(format!("{head}.{}", standard(&claims)))),
        (
            "a payload with a space in it",
            issuer.sign_parts(format!("{head}.{} {}", cut(payload, 8).0, cut(payload, 8).1)),
        ),
        ("a payload with a percent sign in it", issuer.sign_parts(format!("{head}.{payload}%3D"))),
        ("spaces around the dots", format!("{head} . {payload} . {signature}")),
        ("a space before the token", format!(" {valid}")),
        ("two tokens", format!("{valid} {valid}")),
        ("two tokens, with a comma", format!("{valid}, Bearer {valid}")),
        ("a token in quotation marks", format!("\"{valid}\"")),
    ];
    rows.into_iter().map(|(what, token)| (what.to_owned(), token)).collect()
}

/// Tokens of the issuer whose payload is not what it should be.
fn payloads(issuer: &Issuer) -> Vec<Token> {
    let claims = Issuer::claims().to_string();
    let twice = |first: &str| claims.replacen('}', &format!(",{first}}}"), 1);
    let huge = claims.replace("4102444800", "1e400");
    let rows: Vec<(&str, Vec<u8>)> = vec![
        ("a list", format!("[{claims}]").into_bytes()),
        ("a text", json!(claims).to_string().into_bytes()),
        ("a number", b"7".to_vec()),
        ("null", b"null".to_vec()),
        ("nothing", Vec::new()),
        ("an empty object", b"{}".to_vec()),
        ("half an object", claims.as_bytes()[..claims.len() / 2].to_vec()),
        ("two objects", format!("{claims}{claims}").into_bytes()),
        ("an object after a byte order mark", format!("\u{feff}{claims}").into_bytes()),
        ("an object with a comment", format!("{claims}//").into_bytes()),
        ("not UTF-8", [claims.as_bytes(), b"\xff"].concat()),
        (
            "not UTF-8 in a claim",
            claims
                .replace("ada", "\u{1}")
                .into_bytes()
                .into_iter()
                .map(|byte| if byte == 1 { 0xff } else { byte })
                .collect(),
        ),
        ("a number that no double holds", huge.into_bytes()),
        ("ten thousand brackets", "[".repeat(6_000).into_bytes()),
        ("two audiences, the second one another", twice(r#""aud":"other""#).into_bytes()),
        ("two issuers, the second one another", twice(r#""iss":"https://evil.example""#).into_bytes()),
        ("two expiries, the second one past", twice(r#""exp":1"#).into_bytes()),
        ("two subjects, the second one empty", twice(r#""sub":"""#).into_bytes()),
        ("a nested token", issuer.valid().into_bytes()),
        ("a nested token in quotation marks", json!(issuer.valid()).to_string().into_bytes()),
    ];
    rows.into_iter().map(|(what, payload)| (format!("payload: {what}"), issuer.sign_payload(payload))).collect()
}

fn claims(issuer: &Issuer) -> Vec<Token> {
    let mut rows = Vec::new();
    let table = [
        (
            "exp",
            vec![
                json!(null),
                json!(0),
                json!(-1),
                json!(1_700_000_000),
                json!("soon"),
                json!(""),
                json!("0x7fffffff"),
                json!(true),
                json!([4_102_444_800_u64]),
                json!({ "exp": 4_102_444_800_u64 }),
            ],
        ),
        (
            "nbf",
            vec![
                json!(4_102_444_799_u64),
                json!("4102444799"),
                json!("later"),
                json!(""),
                json!(null),
                json!(true),
                json!([]),
                json!({}),
                json!(1e300),
            ],
        ),
        (
            "aud",
            vec![
                json!(null),
                json!(""),
                json!("other"),
                json!("mc"),
                json!("mcpp"),
                json!("MCP"),
                json!("mcp/"),
                json!(" mcp"),
                json!("mcp other"),
                json!(7),
                json!([]),
                json!(["other"]),
                json!([["mcp"]]),
                json!(["MCP", "mcp/"]),
                json!({ "mcp": true }),
            ],
        ),
        (
            "iss",
            vec![
                json!(null),
                json!(""),
                json!("https://evil.example"),
                json!("https://issuer.exampl"),
                json!("https://issuer.example.evil.example"),
                json!("https://issuer.example/"),
                json!("https://issuer.example@evil.example"),
                json!("https://ISSUER.example"),
                json!("http://issuer.example"),
                json!([ISSUER]),
                json!({ "iss": ISSUER }),
                json!("https://issuer.example\u{0}"),
            ],
        ),
        ("sub", vec![json!(null), json!(""), json!(7), json!(["ada"]), json!({ "sub": "ada" }), json!(true)]),
    ];
    for (name, values) in table {
        for value in values {
            rows.push((format!("{name} is {value}"), issuer.sign(&Issuer::but(name, value))));
        }
        let mut without = Issuer::claims();
        without.as_object_mut().unwrap().remove(name);
        if name != "nbf" {
            rows.push((format!("no {name}"), issuer.sign(&without)));
        }
    }
    rows
}

/// Heads of requests that have no token, or a token in the wrong place.
fn heads(issuer: &Issuer) -> Vec<Row> {
    let valid = issuer.valid();
    let basic = STANDARD.encode(format!("ada:{valid}"));
    let rows = [
        ("no token", String::new(), 401),
        ("an empty header", "Authorization: \r\n".to_owned(), 401),
        ("a scheme alone", "Authorization: Bearer\r\n".to_owned(), 401),
        ("a scheme and spaces", "Authorization: Bearer      \r\n".to_owned(), 401),
        ("a scheme in lower case", format!("Authorization: bearer {valid}\r\n"), 401),
        ("a scheme in upper case", format!("Authorization: BEARER {valid}\r\n"), 401),
        ("a token without a scheme", format!("Authorization: {valid}\r\n"), 401),
        ("Basic", format!("Authorization: Basic {basic}\r\n"), 401),
        ("Digest", format!("Authorization: Digest {valid}\r\n"), 401),
        ("Negotiate", format!("Authorization: Negotiate {valid}\r\n"), 401),
        ("DPoP", format!("Authorization: DPoP {valid}\r\n"), 401),
        ("Token", format!("Authorization: Token {valid}\r\n"), 401),
        ("a scheme with an equals sign", format!("Authorization: Bearer={valid}\r\n"), 401),
        ("a scheme and a tab", format!("Authorization: Bearer\t{valid}\r\n"), 401),
        ("a valid header twice", format!("{0}{0}", bearer(&valid)), 401),
        ("a valid header and an invalid one", format!("{}{}", bearer(&valid), bearer("x")), 401),
        ("an invalid header and a valid one", format!("{}{}", bearer("x"), bearer(&valid)), 401),
        ("a valid header and Basic", format!("{}Authorization: Basic {basic}\r\n", bearer(&valid)), 401),
        ("a token in Proxy-Authorization", format!("Proxy-Authorization: Bearer {valid}\r\n"), 401),
        ("a token in a cookie", format!("Cookie: access_token={valid}; Authorization=Bearer {valid}\r\n"), 401),
        ("a token in X-Forwarded-Authorization", format!("X-Forwarded-Authorization: Bearer {valid}\r\n"), 401),
        ("a token in X-Original-Authorization", format!("X-Original-Authorization: Bearer {valid}\r\n"), 401),
        (
            "identities in headers",
            "X-Forwarded-User: ada\r\nX-Remote-User: ada\r\nX-Auth-Request-Email: ada@example.com\r\n".to_owned(),
            401,
        ),
        ("a header of a mebibyte", bearer(&"a".repeat(1024 * 1024)), 431),
        ("a header that is not ASCII", bearer(&format!("{valid}\u{e9}")), 401),
        ("a name with an underscore", format!("Authorization_: Bearer {valid}\r\n"), 401),
    ];
    rows.into_iter()
        .map(|(what, head, status)| Row { what: format!("head: {what}"), attack: Attack::Head(head), status })
        .collect()
}
