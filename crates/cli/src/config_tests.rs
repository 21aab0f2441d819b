use std::collections::HashMap;
use std::fs;

use super::*;

fn origin<'a>(loaded: &'a Loaded, key: &str) -> &'a Origin {
    &loaded.settings.iter().find(|setting| setting.key == key).unwrap().origin
}

fn flags_for(data_dir: &Path) -> SettingArgs {
    SettingArgs { data_dir: Some(data_dir.to_owned()), ..SettingArgs::default() }
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let flags = SettingArgs { default_template: Some("mini".to_owned()), ..SettingArgs::default() };
    let folder = tempfile::tempdir().unwrap();
    // Not the real default folder, which may have a file of the host's own.
    let there = folder.path().display().to_string();
    let variable = |name: &str| (name == "ROOST_DATA_DIR").then(|| there.clone());
    let loaded = load(&flags, None, &variable).unwrap();
    let config = &loaded.config;
    assert_eq!(config.socket, folder.path().join("run/roost.sock"));
    assert_eq!(config.listen, Some("127.0.0.1:7077".parse().unwrap()));
    assert_eq!((config.domain.to_string().as_str(), config.default_template.as_str()), ("localhost:7077", "mini"));
    assert_eq!(config.pool_size, None);
    assert!(config.lazy_pages && config.full_quotas);
    assert_eq!((Limits::default().with(&config.limits), config.limits.memory), (Limits::default(), None));
    let none = CapabilityPolicy { default: BTreeSet::new(), allowed: Capability::ALL.into() };
    assert_eq!(config.capabilities, none);
    assert_eq!(origin(&loaded, "data_dir"), &Origin::Variable("ROOST_DATA_DIR".to_owned()));
    assert_eq!(origin(&loaded, "default_template"), &Origin::Flag("--default-template".to_owned()));
    assert_eq!(origin(&loaded, "domain"), &Origin::Default);
}

#[test]
fn later_sources_win_over_earlier_ones() {
    let folder = tempfile::tempdir().unwrap();
    let toml = "listen = \"127.0.0.1:1\"\ndomain = \"file.test\"\npool_size = \"9g\"\nlazy_pages = false\nfull_quotas = false\n[limits]\nimages = \"5g\"\nmemory = \"1g\"\npids = 99\ncpus = 1.5\n";
    fs::write(folder.path().join("roost.toml"), toml).unwrap();
    let variables: HashMap<&str, &str> =
        [("ROOST_LISTEN", "127.0.0.1:2"), ("ROOST_DOMAIN", "env.test"), ("ROOST_LIMITS_PIDS", "100")].into();
    let variable = |name: &str| variables.get(name).map(|&value| value.to_owned());
    let flags = SettingArgs { domain: Some("flag.test".to_owned()), ..flags_for(folder.path()) };
    let loaded = load(&flags, Some(Path::new("/tmp/x.sock")), &variable).unwrap();
    let config = &loaded.config;
    assert_eq!(config.domain.to_string(), "flag.test");
    assert_eq!(config.listen, Some("127.0.0.1:2".parse().unwrap()));
    assert_eq!(config.pool_size, Some(9 << 30));
    assert!(!config.lazy_pages && !config.full_quotas);
    assert_eq!(config.socket, Path::new("/tmp/x.sock"));
    let limits = LimitsRequest {
        cpus: Some(1.5),
        memory: Some(1 << 30),
        disk: Some(20 << 30),
        pids: Some(100),
        images: Some(5 << 30),
    };
    assert_eq!(config.limits, limits);
    assert_eq!(origin(&loaded, "pool_size"), &Origin::File(folder.path().join("roost.toml")));
    assert_eq!(origin(&loaded, "limits.pids"), &Origin::Variable("ROOST_LIMITS_PIDS".to_owned()));
}

#[test]
fn capabilities_are_read_from_lists_and_texts() {
    let folder = tempfile::tempdir().unwrap();
    let read = |text: &str, variable: &dyn Fn(&str) -> Option<String>| {
        fs::write(folder.path().join("roost.toml"), text).unwrap();
        load(&flags_for(folder.path()), None, variable).map(|loaded| loaded.config.capabilities)
    };
    let raw = BTreeSet::from([Capability::NetRaw]);
    let list = read("[capabilities]\ndefault = [\"net-raw\"]\nallowed = [\"net-raw\"]\n", &|_| None).unwrap();
    assert_eq!(list, CapabilityPolicy { default: raw.clone(), allowed: raw });
    let closed = |name: &str| (name == "ROOST_CAPABILITIES_ALLOWED").then(|| "none".to_owned());
    assert_eq!(read("[capabilities]\ndefault = []\n", &closed).unwrap().allowed, BTreeSet::new());
    let beyond = read("[capabilities]\ndefault = \"net-raw\"\n", &closed).unwrap_err().to_string();
    assert!(beyond.contains("net-raw is not in `capabilities.allowed`"), "{beyond}");
    let unknown = read("[capabilities]\ndefault = [\"sys-admin\"]\n", &|_| None).unwrap_err().to_string();
    assert!(unknown.contains("no capability named `sys-admin`"), "{unknown}");
}

#[test]
fn the_domain_follows_the_port() {
    let folder = tempfile::tempdir().unwrap();
    let flags = SettingArgs { listen: Some("127.0.0.1:9000".to_owned()), ..flags_for(folder.path()) };
    assert_eq!(load(&flags, None, &|_| None).unwrap().config.domain.to_string(), "localhost:9000");
    let flags = SettingArgs { listen: Some("none".to_owned()), ..flags_for(folder.path()) };
    assert_eq!(load(&flags, None, &|_| None).unwrap().config.listen, None);
}

#[test]
fn a_certificate_comes_with_its_key_and_makes_addresses_https() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("roost.toml"), "tls_cert = \"/etc/cert.pem\"\n").unwrap();
    let error = load(&flags_for(folder.path()), None, &|_| None).unwrap_err();
    assert!(error.to_string().contains("roost.toml") && error.to_string().contains("tls_key"), "{error}");
    let flags = SettingArgs { tls_key: Some("/etc/key.pem".into()), ..flags_for(folder.path()) };
    let config = load(&flags, None, &|_| None).unwrap().config;
    let files = TlsFiles { cert: "/etc/cert.pem".into(), key: "/etc/key.pem".into() };
    assert_eq!(config.tls, Some(files));
    assert_eq!(config.domain.url(80, &"web".parse().unwrap()), "https://80-web.localhost:7077");
}

#[test]
fn mistakes_name_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let flags = SettingArgs { listen: Some("everywhere".to_owned()), ..flags_for(folder.path()) };
    let error = load(&flags, None, &|_| None).unwrap_err();
    assert!(error.to_string().contains("--listen"), "{error}");
    fs::write(folder.path().join("roost.toml"), "lisen = 1\n").unwrap();
    let error = load(&flags_for(folder.path()), None, &|_| None).unwrap_err();
    assert!(matches!(&error, ConfigError::Syntax { source, .. } if source.to_string().contains("lisen")), "{error:?}");
    fs::write(folder.path().join("roost.toml"), "[limits]\nmemory = \"lots\"\n").unwrap();
    let error = load(&flags_for(folder.path()), None, &|_| None).unwrap_err();
    assert!(error.to_string().contains("roost.toml"), "{error}");
}

#[test]
fn how_much_memory_must_stay_free_is_configured() {
    use crate::memory::{Amount, MemorySettings};
    let folder = tempfile::tempdir().unwrap();
    let usual = load(&flags_for(folder.path()), None, &|_| None).unwrap().config.memory;
    let expected = MemorySettings { low: Amount::Percent(10.0), critical: Amount::Percent(5.0), max_active: None };
    assert_eq!(usual, expected);
    fs::write(folder.path().join("roost.toml"), "[memory]\nlow = \"2g\"\nmax_active = 8\n").unwrap();
    let changed = load(&flags_for(folder.path()), None, &|_| None).unwrap().config.memory;
    assert_eq!((changed.low, changed.max_active), (Amount::Bytes(2 << 30), Some(8)));
    let zero = |name: &str| (name == "ROOST_MEMORY_MAX_ACTIVE").then(|| "0".to_owned());
    let error = load(&flags_for(folder.path()), None, &zero).unwrap_err();
    assert!(error.to_string().contains("ROOST_MEMORY_MAX_ACTIVE"), "{error}");
}

#[test]
fn there_are_as_many_networks_as_configured() {
    let folder = tempfile::tempdir().unwrap();
    let usual = load(&flags_for(folder.path()), None, &|_| None).unwrap().config.network_slots;
    assert_eq!(usual, roost_net::MOST_SLOTS);
    fs::write(folder.path().join("roost.toml"), "network_slots = 100\n").unwrap();
    assert_eq!(load(&flags_for(folder.path()), None, &|_| None).unwrap().config.network_slots, 100);
    for wrong in ["0", "9000", "many"] {
        let variable = |name: &str| (name == "ROOST_NETWORK_SLOTS").then(|| wrong.to_owned());
        let error = load(&flags_for(folder.path()), None, &variable).unwrap_err();
        assert!(error.to_string().contains("ROOST_NETWORK_SLOTS"), "{error}");
    }
}

#[test]
fn the_example_that_is_installed_is_understood() {
    let example = include_str!("../../../packaging/roost.toml");
    // A setting has nothing between it and its `#`; an explanation has a space.
    let setting = |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
    let settings: Vec<String> = example.lines().filter_map(setting).collect();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("roost.toml"), settings.join("\n")).unwrap();
    let loaded = load(&flags_for(folder.path()), None, &|_| None).unwrap();
    let unsaid: Vec<_> = loaded.settings.iter().filter(|setting| setting.origin == Origin::Default).collect();
    assert!(unsaid.is_empty(), "the example leaves out {unsaid:?}");
    assert_eq!(Limits::default().with(&loaded.config.limits), Limits::default());
}
