//! Which sets of services make sense.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use roost_model::{Name, ServiceSpec};

/// The most services of one sandbox.
pub const MOST_SERVICES: usize = 64;
/// The longest time that a service may take to stop.
pub const LONGEST_STOP: Duration = Duration::from_secs(300);
/// Most bytes of what one service is given: commands, arguments and environment.
const LARGEST_SERVICE: usize = 16 << 10;
/// Most bytes of all of them: every start of the sandbox hands them to its guest in one piece.
const LARGEST_SET: usize = 256 << 10;

/// Why a set of services makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// Nothing to run.
    #[error("service `{0}` has nothing to run: give `argv` or `shell`")]
    NoCommand(Name),
    /// Two things to run.
    #[error("service `{0}` has both `argv` and `shell`: give one of them")]
    TwoCommands(Name),
    /// Text that no process can be given.
    #[error("a command, folder, user or variable of service `{0}` cannot be passed to a process")]
    Unfit(Name),
    /// Port 0, or one that is not the sandbox's to use.
    #[error("service `{name}` cannot have port {port}")]
    Port {
        /// Whose.
        name: Name,
        /// Which.
        port: u16,
    },
    /// One port for two.
    #[error("services `{first}` and `{second}` both have port {port}")]
    SamePort {
        /// One of them.
        first: Name,
        /// The other.
        second: Name,
        /// Which port.
        port: u16,
    },
    /// A need that is not there.
    #[error("service `{name}` needs `{need}`, which is not a service of this sandbox")]
    UnknownNeed {
        /// Who needs it.
        name: Name,
        /// What.
        need: Name,
    },
    /// None of them could ever be first.
    #[error("services need each other in a circle: {}", circle.join(" needs "))]
    Circle {
        /// One after the other, the first at the end again.
        circle: Vec<String>,
    },
    /// A stop without an end.
    #[error("service `{0}` may take at most 5m to stop")]
    StopTimeout(Name),
    /// More than there may be.
    #[error("a sandbox has at most {MOST_SERVICES} services")]
    TooMany,
    /// Too much text.
    #[error("service `{0}` is too large: a service may have {LARGEST_SERVICE} bytes, all of them {LARGEST_SET}")]
    TooLarge(Name),
}

impl ServiceError {
    /// Whether it is a matter of amounts rather than of sense.
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::TooMany | Self::TooLarge(_))
    }
}

/// Checks a set of services, `reserved` being the port that none of them can have.
pub fn check_services(services: &BTreeMap<Name, ServiceSpec>, reserved: u16) -> Result<(), ServiceError> {
    if services.len() > MOST_SERVICES {
        return Err(ServiceError::TooMany);
    }
    let mut ports: BTreeMap<u16, &Name> = BTreeMap::new();
    let mut total = 0;
    for (name, spec) in services {
        check_one(name, spec)?;
        total += size(spec);
        if total > LARGEST_SET {
            return Err(ServiceError::TooLarge(name.clone()));
        }
        if let Some(port) = spec.port {
            if port == 0 || port == reserved {
                return Err(ServiceError::Port { name: name.clone(), port });
            }
            if let Some(first) = ports.insert(port, name) {
                return Err(ServiceError::SamePort { first: first.clone(), second: name.clone(), port });
            }
        }
        if let Some(need) = spec.needs.iter().find(|need| !services.contains_key(*need)) {
            return Err(ServiceError::UnknownNeed { name: name.clone(), need: need.clone() });
        }
    }
    match circle(services) {
        Some(circle) => Err(ServiceError::Circle { circle: circle.iter().map(|name| format!("`{name}`")).collect() }),
        None => Ok(()),
    }
}

fn check_one(name: &Name, spec: &ServiceSpec) -> Result<(), ServiceError> {
    match (&spec.shell, spec.argv.is_empty()) {
        (Some(_), false) => return Err(ServiceError::TwoCommands(name.clone())),
        (None, true) => return Err(ServiceError::NoCommand(name.clone())),
        _ => {}
    }
    let texts = spec.argv.iter().chain(&spec.shell).chain(&spec.cwd).chain(&spec.user).chain(spec.env.values());
    let odd_key = |key: &String| key.is_empty() || key.contains(['=', '\0']);
    if texts.into_iter().any(|text| text.contains('\0')) || spec.env.keys().any(odd_key) {
        return Err(ServiceError::Unfit(name.clone()));
    }
    if spec.stop_timeout.get().is_none_or(|time| time > LONGEST_STOP) {
        return Err(ServiceError::StopTimeout(name.clone()));
    }
    if size(spec) > LARGEST_SERVICE {
        return Err(ServiceError::TooLarge(name.clone()));
    }
    Ok(())
}

fn size(spec: &ServiceSpec) -> usize {
    let texts = spec.argv.iter().chain(&spec.shell).chain(&spec.cwd).chain(&spec.user);
    let env = spec.env.iter().map(|(key, value)| key.len() + value.len() + 2);
    let needs = spec.needs.iter().map(|need| need.as_str().len() + 1);
    texts.map(|text| text.len() + 1).chain(env).chain(needs).sum()
}

/// Services that need each other in a circle, if some do.
fn circle(services: &BTreeMap<Name, ServiceSpec>) -> Option<Vec<Name>> {
    let mut sound: BTreeSet<&Name> = BTreeSet::new();
    for name in services.keys() {
        let mut way: Vec<&Name> = Vec::new();
        if let Some(circle) = walk(services, name, &mut way, &mut sound) {
            return Some(circle);
        }
    }
    None
}

fn walk<'a>(
    services: &'a BTreeMap<Name, ServiceSpec>,
    name: &'a Name,
    way: &mut Vec<&'a Name>,
    sound: &mut BTreeSet<&'a Name>,
) -> Option<Vec<Name>> {
    if let Some(at) = way.iter().position(|passed| *passed == name) {
        return Some(way.iter().skip(at).chain([&name]).map(|name| (*name).clone()).collect());
    }
    if sound.contains(name) {
        return None;
    }
    way.push(name);
    for need in services.get(name).into_iter().flat_map(|spec| &spec.needs) {
        if let Some(circle) = walk(services, need, way, sound) {
            return Some(circle);
        }
    }
    way.pop();
    sound.insert(name);
    None
}

/// How long all services may take to stop, each after those that need it. The set must make sense.
pub fn stop_time(services: &BTreeMap<Name, ServiceSpec>) -> Duration {
    fn after<'a>(
        services: &'a BTreeMap<Name, ServiceSpec>,
        name: &'a Name,
        known: &mut BTreeMap<&'a Name, Duration>,
    ) -> Duration {
        if let Some(time) = known.get(name) {
            return *time;
        }
        let Some(spec) = services.get(name) else { return Duration::ZERO };
        let needs = spec.needs.iter().map(|need| after(services, need, known)).max().unwrap_or_default();
        let time = needs + spec.stop_timeout.get().unwrap_or(LONGEST_STOP);
        known.insert(name, time);
        time
    }
    let mut known = BTreeMap::new();
    services.keys().map(|name| after(services, name, &mut known)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roost_model::Span;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn spec(needs: &[&str]) -> ServiceSpec {
        ServiceSpec {
            shell: Some("serve".into()),
            needs: needs.iter().map(|need| name(need)).collect(),
            ..ServiceSpec::default()
        }
    }

    fn set(services: &[(&str, ServiceSpec)]) -> BTreeMap<Name, ServiceSpec> {
        services.iter().map(|(text, spec)| (name(text), spec.clone())).collect()
    }

    #[test]
    fn what_makes_sense_is_taken() {
        let port = |port, needs: &[&str]| ServiceSpec { port: Some(port), ..spec(needs) };
        let services = set(&[("db", port(5432, &[])), ("web", port(80, &["db"])), ("job", spec(&["db", "web"]))]);
        assert_eq!(check_services(&services, 14), Ok(()));
        assert_eq!(stop_time(&services), Duration::from_secs(30));
        assert_eq!(stop_time(&BTreeMap::new()), Duration::ZERO);
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        let says = |services: &[(&str, ServiceSpec)]| check_services(&set(services), 14).unwrap_err().to_string();
        assert!(says(&[("a", ServiceSpec::default())]).contains("nothing to run"));
        assert!(
            says(&[("a", ServiceSpec { argv: vec!["x".into()], ..spec(&[]) })]).contains("both `argv` and `shell`")
        );
        assert!(says(&[("a", ServiceSpec { cwd: Some("a\0b".into()), ..spec(&[]) })]).contains("cannot be passed"));
        let env = BTreeMap::from([("A=B".to_owned(), String::new())]);
        assert!(says(&[("a", ServiceSpec { env, ..spec(&[]) })]).contains("cannot be passed"));
        for port in [0, 14] {
            assert!(says(&[("a", ServiceSpec { port: Some(port), ..spec(&[]) })]).contains(&format!("port {port}")));
        }
        let same = ServiceSpec { port: Some(80), ..spec(&[]) };
        assert_eq!(says(&[("a", same.clone()), ("b", same)]), "services `a` and `b` both have port 80");
        assert!(says(&[("a", spec(&["b"]))]).contains("needs `b`, which is not a service"));
        assert!(says(&[("a", ServiceSpec { stop_timeout: Span::NEVER, ..spec(&[]) })]).contains("at most 5m"));
        assert!(
            says(&[("a", ServiceSpec { argv: vec!["x".repeat(20_000)], ..ServiceSpec::default() })]).contains("large")
        );
        let many: Vec<String> = (0..65).map(|number| format!("s{number}")).collect();
        let many: Vec<_> = many.iter().map(|text| (text.as_str(), spec(&[]))).collect();
        assert!(says(&many).contains("at most 64"));
    }

    #[test]
    fn a_circle_is_named() {
        let services = set(&[("a", spec(&["b"])), ("b", spec(&["c"])), ("c", spec(&["b"])), ("d", spec(&[]))]);
        let error = check_services(&services, 14).unwrap_err();
        assert_eq!(error.to_string(), "services need each other in a circle: `b` needs `c` needs `b`");
        let own = check_services(&set(&[("a", spec(&["a"]))]), 14).unwrap_err();
        assert_eq!(own.to_string(), "services need each other in a circle: `a` needs `a`");
    }

    proptest! {
        /// A set is refused exactly if no order exists in which every service comes after its needs.
        #[test]
        fn circles_are_found_and_nothing_else(edges in proptest::collection::vec((0usize..8, 0usize..8), 0..16)) {
            let needs_of = |from: usize| edges.iter().filter(|(a, _)| *a == from).map(|(_, b)| *b).collect::<Vec<_>>();
            let services: BTreeMap<Name, ServiceSpec> = (0..8)
                .map(|number| {
                    let needs = needs_of(number).iter().map(|need| name(&format!("s{need}"))).collect();
                    (name(&format!("s{number}")), ServiceSpec { needs, ..spec(&[]) })
                })
                .collect();
            let mut placed: BTreeSet<usize> = BTreeSet::new();
            while let Some(next) =
                (0..8).find(|one| !placed.contains(one) && needs_of(*one).iter().all(|need| placed.contains(need)))
            {
                placed.insert(next);
            }
            let sound = placed.len() == 8;
            prop_assert_eq!(check_services(&services, 14).is_ok(), sound);
            if sound {
                let longest = Duration::from_secs(80);
                prop_assert!(stop_time(&services) <= longest && stop_time(&services) >= Duration::from_secs(10));
            }
        }
    }
}
