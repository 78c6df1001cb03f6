use super::*;

fn remote_url(text: &str, allow_private: bool) -> Result<Url, UrlError> {
    super::remote_url(text, allow_private, Site::Cluster)
}

#[test]
fn public_hosts_are_allowed() {
    for text in [
        "https://mcp.example.com/mcp",
        "http://mcp.example.com:8080/a?b=c#d",
        "HTTPS://EXAMPLE.com",
        "https://8.8.8.8/",
        "https://[2606:4700::1111]/",
        "https://172.32.0.1",
        "https://notlocalhost",
        "https://my-cluster.localdomain",
        "https://user:secret@example.com/",
        "https://münchen.example/",
    ] {
        assert!(remote_url(text, false).is_ok(), "{text}: {:?}", remote_url(text, false));
    }
}

#[test]
fn this_machine_and_the_control_plane_are_never_allowed() {
    for text in [
        "http://localhost",
        "http://LOCALHOST:8080",
        "http://localhost.",
        "http://a.localhost/",
        "http://127.0.0.1",
        "http://127.1",
        "http://2130706433",
        "http://0x7f.0.0.1",
        "http://0.0.0.0",
        "http://169.254.169.254/latest",
        "http://[::]",
        "http://[::1]:80/",
        "http://[fe80::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "https://kubernetes.default",
        "https://kubernetes.default.svc",
        "https://kubernetes.default.svc.cluster.local",
        "https://x.kubernetes.default.svc",
        "http://metadata.google.internal/",
        "http://metadata/",
        "http://100.100.100.200/latest",
        "http://[fd00:ec2::254]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://0xa9fea9fe/",
        "http://224.0.0.1/",
        "http://user@localhost/",
    ] {
        for allow_private in [false, true] {
            let result = remote_url(text, allow_private);
            assert!(matches!(result, Err(UrlError::Forbidden(_))), "{text}: {result:?}");
        }
    }
}

#[test]
fn private_networks_are_allowed_on_request() {
    for text in [
        "http://10.0.0.1",
        "http://172.16.0.1",
        "http://172.31.255.255",
        "http://192.168.1.1",
        "http://100.64.0.1",
        "http://[2001:db8::1]/",
        "http://[fc00::1]/",
        "http://[fd12::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://server.default.svc.cluster.local:8080",
        "http://cluster.local",
    ] {
        assert!(matches!(remote_url(text, false), Err(UrlError::Private(_))), "{text}");
        assert!(remote_url(text, true).is_ok(), "{text}");
    }
}

#[test]
fn this_machine_is_allowed_where_it_is_the_users_own() {
    for text in ["http://localhost:8080/mcp", "http://127.0.0.1", "http://[::1]:80/"] {
        assert!(super::remote_url(text, false, Site::Machine).is_ok(), "{text}");
    }
    for text in ["http://169.254.169.254", "http://metadata", "http://0.0.0.0", "https://kubernetes.default.svc"] {
        let result = super::remote_url(text, true, Site::Machine);
        assert!(matches!(result, Err(UrlError::Forbidden(_))), "{text}: {result:?}");
    }
    assert!(matches!(super::remote_url("http://10.0.0.1", false, Site::Machine), Err(UrlError::Private(_))));
}

#[test]
fn urls_of_other_schemes_are_refused() {
    for text in
        ["", "example.com", "http:example.com", "https://", "https:///path", "https://:80", "http://a b", "https://?q"]
    {
        assert!(matches!(remote_url(text, true), Err(UrlError::Malformed(_))), "{text}: {:?}", remote_url(text, true));
    }
    for text in [" https://example.com", "https://exa\nmple.com", "https://example.com\\@localhost", "https://[::1"] {
        assert!(remote_url(text, true).is_err(), "{text}");
    }
    for text in ["ftp://example.com", "file:///etc/passwd", "://example.com", "javascript://x"] {
        assert_eq!(remote_url(text, true), Err(UrlError::Scheme(text.into())), "{text}");
    }
}

#[test]
fn a_provider_is_reached_over_tls_unless_an_option_allows_otherwise() {
    assert!(provider_url("https://idp.example.com", false).is_ok());
    assert!(provider_url("https://kubernetes.default.svc", false).is_ok());
    assert!(provider_url("http://idp.example.com", true).is_ok());
    let error = provider_url("http://idp.example.com", false).unwrap_err();
    assert_eq!(error, UrlError::Insecure("http://idp.example.com".into()));
    assert!(error.to_string().contains("insecureAllowHTTP"));
    for text in
        ["https://169.254.169.254/", "https://metadata.google.internal", "http://100.100.100.200", "https://[fe80::1]/"]
    {
        assert!(matches!(provider_url(text, true), Err(UrlError::Forbidden(_))), "{text}");
    }
    for text in ["http://localhost:8080", "https://10.0.0.1", "https://idp.ns.svc.cluster.local"] {
        assert!(provider_url(text, true).is_ok(), "{text}");
    }
}
