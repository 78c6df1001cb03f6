use super::*;

fn config(json: &str) -> RunConfig {
    RunConfig::from_slice(json.as_bytes()).unwrap()
}

fn settings(json: &str, variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Settings::new(config(json), &Overrides { image: "i".to_owned(), patch: None }, &variables)
}

#[test]
fn the_first_file_counts_and_a_broken_one_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("a"), directory.path().join("b"));
    let places = [first.clone(), second.clone()];
    let message = |found: Result<RunConfig, SettingsError>| found.unwrap_err().to_string();
    assert!(message(find(&places)).contains(&first.display().to_string()), "it says where it looked");
    std::fs::write(&second, r#"{"name":"second"}"#).unwrap();
    assert_eq!(find(&places).unwrap().name, "second");
    std::fs::write(&first, r#"{"name":"first"} and more"#).unwrap();
    assert_eq!(find(&places).unwrap().name, "first");
    std::fs::write(&first, "{").unwrap();
    assert!(message(find(&places)).contains("is not a RunConfig"));
}

#[test]
fn the_environment_beats_the_file_about_the_generation() {
    for (variable, expected) in [("", 3), ("7", 7), ("0", 0), ("-1", 3), ("x", 3)] {
        let read =
            settings(r#"{"transport":"stdio","mcpserver_generation":3}"#, &[("THV_MCPSERVER_GENERATION", variable)]);
        assert_eq!(read.unwrap().config.mcpserver_generation, expected, "{variable}");
    }
}

#[test]
fn the_image_comes_from_the_command_line_and_so_may_the_pod_template() {
    let file = config(r#"{"transport":"stdio","image":"file","k8s_pod_template_patch":"{\"spec\":{}}"}"#);
    let read = |patch: Option<&str>| {
        let overrides = Overrides { image: "line".to_owned(), patch: patch.map(str::to_owned) };
        let settings = Settings::new(file.clone(), &overrides, &BTreeMap::new()).unwrap();
        match settings.backend {
            Backend::Stdio(server, _) => (server.image, server.patch),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(None), ("line".to_owned(), r#"{"spec":{}}"#.to_owned()));
    assert_eq!(read(Some("")).1, r#"{"spec":{}}"#);
    assert_eq!(read(Some("{}")).1, "{}");
}

#[test]
fn what_cannot_be_meant_is_refused_by_name() {
    for (json, part) in [
        (r#"{"transport":"inspector"}"#, "transport: `inspector`"),
        (r#"{"transport":"sse"}"#, "target_port: `0`"),
        (r#"{"transport":"stdio","proxy_mode":"x"}"#, "unsupported proxy mode `x`"),
        (r#"{"transport":"stdio","session_ttl":"-1h"}"#, "session_ttl: `-1h`"),
        (r#"{"transport":"stdio","session_ttl":"soon"}"#, "session_ttl: `soon`"),
        (r#"{"transport":"stdio","stateless":true}"#, "stateless"),
        (r#"{"transport":"stdio","host":"nowhere"}"#, "host: `nowhere`"),
        (r#"{"transport":"stdio","port":70000}"#, "port: `70000`"),
        (r#"{"transport":"sse","remote_url":"ftp://a"}"#, "remote_url"),
    ] {
        let message = settings(json, &[]).unwrap_err().to_string();
        assert!(message.contains(part), "{json}: {message}");
    }
}

#[test]
fn times_have_defaults_and_nonsense_is_not_used() {
    let time = |variable: &str| {
        settings(r#"{"transport":"stdio"}"#, &[("TOOLHIVE_PROXY_REQUEST_TIMEOUT", variable)]).unwrap().request_timeout
    };
    for (variable, seconds) in [("", 60), ("90s", 90), ("2m", 120), ("0s", 60), ("-1s", 60), ("soon", 60)] {
        assert_eq!(time(variable), Duration::from_secs(seconds), "{variable}");
    }
    let ttl =
        |text: &str| settings(&format!(r#"{{"transport":"stdio","session_ttl":"{text}"}}"#), &[]).unwrap().session_ttl;
    assert_eq!((ttl(""), ttl("0s"), ttl("30m")), (SESSION_TTL, SESSION_TTL, Duration::from_mins(30)));
}

#[test]
fn how_a_server_is_watched_can_be_set() {
    let health = |variables: &[(&str, &str)]| {
        let health = settings(r#"{"transport":"sse","target_port":1}"#, variables).unwrap().health;
        (health.interval, health.timeout)
    };
    let (interval, timeout) = ("TOOLHIVE_HEALTH_CHECK_INTERVAL", "TOOLHIVE_HEALTH_CHECK_PING_TIMEOUT");
    let usual = (Duration::from_secs(10), Duration::from_secs(5));
    assert_eq!(health(&[]), usual);
    assert_eq!(health(&[(interval, "soon"), (timeout, "-1s")]), usual);
    assert_eq!(health(&[(interval, "1m"), (timeout, "250ms")]), (Duration::from_mins(1), Duration::from_millis(250)));
}

#[test]
fn remote_servers_are_checked_only_on_request() {
    let watched = |json: &str, variable: &str| {
        settings(json, &[("TOOLHIVE_REMOTE_HEALTHCHECKS", variable)]).unwrap().health.enabled
    };
    assert!(watched(r#"{"transport":"streamable-http","target_port":1}"#, ""));
    let remote = r#"{"transport":"streamable-http","remote_url":"https://a.example"}"#;
    assert!(!watched(remote, "") && watched(remote, "1") && watched(remote, "true"));
}

#[test]
fn files_of_variables_are_read_line_by_line() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a"), "# comment\nexport A=1\nB = x=y \nnonsense\n=1\n").unwrap();
    std::fs::write(directory.path().join(".hidden"), "C=1").unwrap();
    let read = files_of_variables(directory.path());
    let expected = [("A", "1"), ("B", "x=y")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(read, expected.into());
    assert!(files_of_variables(Path::new("/no/such/place")).is_empty());
}

#[test]
fn origins_and_hosts_are_added_by_variables_and_must_be_some() {
    let variables = [
        ("SKEP_ALLOWED_ORIGINS", "http://localhost:6274, https://a.example"),
        ("SKEP_ALLOWED_HOSTS", "tools.test,one.test:80,"),
    ];
    let read = settings(r#"{"transport":"stdio","allowed_origins":["http://b"]}"#, &variables).unwrap();
    assert_eq!(read.config.allowed_origins, ["http://b", "http://localhost:6274", "https://a.example"]);
    assert_eq!(read.allowed_hosts, ["tools.test", "one.test:80"]);
    for wrong in [("SKEP_ALLOWED_ORIGINS", "a.example"), ("SKEP_ALLOWED_HOSTS", "http://a.example")] {
        let error = settings(r#"{"transport":"stdio"}"#, &[wrong]).unwrap_err().to_string();
        assert!(error.contains(wrong.1), "{error}");
    }
}
