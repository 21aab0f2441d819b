//! Users and groups of the sandbox, read from its own files.
//!
//! Not by the C library: its lookups load modules at run time, which a static program cannot.

use std::fs;

use roost_wire::{ErrorCode, Failure};

/// A user as processes and files need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: String,
    pub(crate) shell: String,
    /// Every group it is in besides `gid`.
    pub(crate) groups: Vec<u32>,
}

/// The contents of `passwd` and `group` at one moment.
#[derive(Debug)]
pub(crate) struct Users {
    passwd: String,
    group: String,
}

struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
    shell: &'a str,
}

impl Users {
    /// Reads the files anew; the sandbox may have changed them since. A missing one has no entries.
    pub(crate) fn load() -> Self {
        let read = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        Self { passwd: read("/etc/passwd"), group: read("/etc/group") }
    }

    /// Finds `name`, `uid`, `name:group` or `uid:gid`. A number needs no entry.
    pub(crate) fn find(&self, spec: &str) -> Result<User, Failure> {
        let (who, group) = match spec.split_once(':') {
            Some((who, group)) => (who, Some(group)),
            None => (spec, None),
        };
        let number = who.parse::<u32>().ok();
        let account = self.accounts().find(|account| account.name == who || Some(account.uid) == number);
        let mut user = match (account, number) {
            (Some(account), _) => User {
                name: account.name.to_owned(),
                uid: account.uid,
                gid: account.gid,
                home: or(account.home, "/"),
                shell: or(account.shell, "/bin/sh"),
                groups: self.groups_of(account.name, account.gid),
            },
            (None, Some(uid)) => User {
                name: uid.to_string(),
                uid,
                gid: uid,
                home: "/".to_owned(),
                shell: "/bin/sh".to_owned(),
                groups: Vec::new(),
            },
            // A template may come without a `passwd`; its root is root all the same.
            (None, None) if who == "root" => User {
                name: "root".to_owned(),
                uid: 0,
                gid: 0,
                home: "/root".to_owned(),
                shell: "/bin/sh".to_owned(),
                groups: Vec::new(),
            },
            (None, None) => return Err(not_found("user", who)),
        };
        if let Some(group) = group {
            user.gid = self.gid(group)?;
        }
        Ok(user)
    }

    /// Finds the uid of a name or number.
    pub(crate) fn uid(&self, spec: &str) -> Result<u32, Failure> {
        Ok(self.find(spec)?.uid)
    }

    /// Finds the gid of a name or number.
    pub(crate) fn gid(&self, spec: &str) -> Result<u32, Failure> {
        if let Ok(gid) = spec.parse() {
            return Ok(gid);
        }
        let group = self.groups().find(|(name, ..)| *name == spec);
        group.map(|(_, gid, _)| gid).ok_or_else(|| not_found("group", spec))
    }

    pub(crate) fn user_name(&self, uid: u32) -> Option<String> {
        self.accounts().find(|account| account.uid == uid).map(|account| account.name.to_owned())
    }

    pub(crate) fn group_name(&self, gid: u32) -> Option<String> {
        self.groups().find(|(_, known, _)| *known == gid).map(|(name, ..)| name.to_owned())
    }

    fn accounts(&self) -> impl Iterator<Item = Account<'_>> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next().filter(|name| !name.is_empty())?, fields.next()?);
            let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            let (_comment, home, shell) = (fields.next()?, fields.next()?, fields.next().unwrap_or_default());
            Some(Account { name, uid, gid, home, shell })
        })
    }

    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next().filter(|name| !name.is_empty())?, fields.next()?);
            Some((name, fields.next()?.parse().ok()?, fields.next().unwrap_or_default()))
        })
    }

    fn groups_of(&self, name: &str, primary: u32) -> Vec<u32> {
        let member = |(_, gid, members): (&str, u32, &str)| {
            (gid != primary && members.split(',').any(|member| member.trim() == name)).then_some(gid)
        };
        self.groups().filter_map(member).collect()
    }
}

fn or(text: &str, default: &str) -> String {
    if text.is_empty() { default } else { text }.to_owned()
}

fn not_found(what: &str, name: &str) -> Failure {
    Failure::new(ErrorCode::UserNotFound, format!("no {what} named `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        Users {
            passwd: "root:x:0:0:root:/root:/bin/bash\n\nbroken\n:x:5:5::/:\nbad:x:a:b::/:\n\
                     user:x:1000:1000:,,,:/home/user:/bin/bash\nbare:x:7:8:::\n"
                .to_owned(),
            group: "root:x:0:\nsudo:x:27:user, other\nuser:x:1000:user\ndocker:x:99:other,user\nodd\n".to_owned(),
        }
    }

    #[test]
    fn names_numbers_and_groups() {
        let users = users();
        let user = users.find("user").unwrap();
        assert_eq!(
            (user.uid, user.gid, user.home.as_str(), user.groups.as_slice()),
            (1000, 1000, "/home/user", &[27, 99][..])
        );
        assert_eq!(users.find("1000").unwrap(), user);
        assert_eq!(users.find("1000:27").unwrap().gid, 27);
        assert_eq!(users.find("user:sudo").unwrap().gid, 27);
        assert_eq!(users.find("user:5").unwrap().gid, 5);
        let bare = users.find("bare").unwrap();
        assert_eq!((bare.home.as_str(), bare.shell.as_str()), ("/", "/bin/sh"));
    }

    #[test]
    fn a_number_needs_no_entry_but_a_name_does() {
        let users = users();
        let stranger = users.find("4242").unwrap();
        assert_eq!((stranger.uid, stranger.gid, stranger.name.as_str()), (4242, 4242, "4242"));
        for spec in ["nobody", "", "user:nogroup", "broken", "bad", "-1"] {
            assert_eq!(users.find(spec).unwrap_err().code, ErrorCode::UserNotFound, "{spec}");
        }
        let empty = Users { passwd: String::new(), group: String::new() };
        assert_eq!(empty.find("root").unwrap().uid, 0);
    }

    #[test]
    fn names_of_numbers() {
        assert_eq!(users().user_name(1000).as_deref(), Some("user"));
        assert_eq!(users().group_name(27).as_deref(), Some("sudo"));
        assert_eq!(users().user_name(12), None);
    }
}
