//! Archives as tests want them, and templates made of them.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use roost_disk::{Existing, ImportError, ImportSource, Template, Templates};
use roost_model::{Name, TemplateDefaults};
use tar::{EntryType, Header};

use super::Home;

/// Longer names are in records of their own.
const SHORT: usize = 100;

/// An archive that says whatever a test wants, unlike one made by a well-behaved builder.
#[derive(Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    pub(crate) fn add(
        &mut self,
        name: &str,
        kind: EntryType,
        link: &str,
        owner: u64,
        mode: u32,
        data: &[u8],
    ) -> &mut Self {
        let mut header = Header::new_gnu();
        let records = [("path", name.as_bytes()), ("linkpath", link.as_bytes())];
        let long: Vec<_> = records.into_iter().filter(|(_, text)| text.len() > SHORT).collect();
        if !long.is_empty() {
            self.pax(&long);
        }
        let (name, link) = (name.as_bytes(), link.as_bytes());
        let (name, link) = (&name[..name.len().min(SHORT)], &link[..link.len().min(SHORT)]);
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(mode);
        header.set_uid(owner);
        header.set_gid(owner);
        header.set_mtime(1_000_000_000);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            header.set_device_major(8).unwrap();
            header.set_device_minor(0).unwrap();
        }
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(&mut self, name: &str, text: &str) -> &mut Self {
        self.add(name, EntryType::Regular, "", 0, 0o644, text.as_bytes())
    }

    pub(crate) fn folder(&mut self, name: &str) -> &mut Self {
        self.add(name, EntryType::Directory, "", 0, 0o755, b"")
    }

    pub(crate) fn link(&mut self, name: &str, target: &str) -> &mut Self {
        self.add(name, EntryType::Symlink, target, 0, 0o777, b"")
    }

    pub(crate) fn pax(&mut self, records: &[(&str, &[u8])]) -> &mut Self {
        let mut data = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let length = (1..).map(|digits| rest + digits).find(|n| n.to_string().len() + rest == *n).unwrap();
            write!(data, "{length} {key}=").unwrap();
            data.extend_from_slice(value);
            data.push(b'\n');
        }
        self.add("pax", EntryType::XHeader, "", 0, 0o644, &data)
    }

    pub(crate) fn finish(&self) -> Vec<u8> {
        [self.0.as_slice(), &[0; 1024]].concat()
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    gzip.stdin.take().unwrap().write_all(bytes).unwrap();
    gzip.wait_with_output().unwrap().stdout
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn import(
    templates: &Templates,
    template: &str,
    source: ImportSource,
    existing: Existing,
) -> Result<Template, ImportError> {
    templates.import(name(template), source, TemplateDefaults::default(), existing, &|_| {})
}

pub(crate) fn import_tar(templates: &Templates, template: &str, bytes: Vec<u8>) -> Result<Template, ImportError> {
    import(templates, template, ImportSource::Tar(Box::new(io::Cursor::new(bytes))), Existing::Refuse)
}

/// Nothing but the named templates lies in the store.
pub(crate) fn assert_only(home: &Home, names: &[&str]) {
    let mut found: Vec<_> = fs::read_dir(home.data().join("templates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort_unstable();
    assert_eq!(found, names);
}

pub(crate) fn xattr(path: &Path, key: &str) -> Option<Vec<u8>> {
    let mut value = vec![0_u8; 256];
    let length = rustix::fs::lgetxattr(path, key, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}
