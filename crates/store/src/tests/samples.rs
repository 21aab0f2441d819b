//! Records to test with.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use roost_lifecycle::Phase;
use roost_model::{
    Capability, CheckpointBytes, CheckpointId, EngineKind, EventKind, IdlePolicy, Level, Limits, NetworkPolicy,
    NotKept, OnTtl, Operation, Parent, PortAccess, Receipt, SandboxId, SavedProcess, ServiceSpec, Span, Spent,
    StartPolicy, Tombstone,
};

use crate::{CheckpointRecord, NewEvent, SandboxRecord, ServiceRecord, ServiceRecords};

/// The moment that many seconds after a fixed one.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// An event at that moment.
pub(super) fn event(kind: EventKind, seconds: i64) -> NewEvent {
    NewEvent { at: at(seconds), kind, reason: None, receipt: None }
}

/// A sandbox that is being made; larger numbers are younger.
pub(super) fn record(name: &str, number: u64) -> SandboxRecord {
    SandboxRecord {
        id: SandboxId::from_parts(1_800_000_000_000 + number, u128::from(number)),
        name: name.parse().unwrap(),
        phase: Phase::Creating,
        state_since: at(0),
        created_at: at(0),
        engine: EngineKind::Fake,
        template: "mini".to_owned(),
        template_digest: "d1".to_owned(),
        ephemeral: false,
        bound_to_run: false,
        made_by: None,
        pool: None,
        generation: 1,
        parent: Some(Parent { sandbox: SandboxId::from_parts(1, 1), checkpoint: Some(CheckpointId::from_parts(2, 2)) }),
        limits: Limits { cpus: 0.1 + 0.2, memory: u64::MAX, disk: 1 << 40, pids: 512, images: None },
        idle: IdlePolicy { after: Span::NEVER, to: Level::Disk, deepen_after: Span::seconds(90), ignore: Vec::new() },
        ttl: Some(Span::seconds(3600)),
        expires_at: Some(at(3600)),
        on_ttl: OnTtl::Delete,
        stays: false,
        auto_resume: false,
        labels: BTreeMap::from([("team".to_owned(), "ä \"quoted\" 'name'".to_owned())]),
        env: BTreeMap::from([("TOKEN".to_owned(), "environment-secret".to_owned())]),
        services: services(),
        network: NetworkPolicy { enabled: false },
        capabilities: Some(BTreeSet::from([Capability::NetRaw])),
        key: "guest-secret".to_owned(),
        slot: Some(7),
        uid_range: 9,
        user: "user".to_owned(),
        workdir: Some("/home/user".to_owned()),
        image: None,
        checkpoint: None,
        source: None,
        asleep_since: None,
        quiet_since: None,
        not_saved: None,
        spent: Spent::default(),
        boot: 1,
        booted_at: None,
        ports: Vec::new(),
        port_access: PortAccess::Private,
        reason: Some("because".to_owned()),
        tombstone: None,
    }
}

fn services() -> ServiceRecords {
    let spec = ServiceSpec {
        argv: vec!["serve".to_owned()],
        env: BTreeMap::from([("TOKEN".to_owned(), "service-secret".to_owned())]),
        port: Some(80),
        needs: vec!["db".parse().unwrap()],
        start: StartPolicy::OnDemand,
        ..ServiceSpec::default()
    };
    let by_name = BTreeMap::from([("web".parse().unwrap(), ServiceRecord { spec, stopped: true })]);
    ServiceRecords { revision: 3, by_name }
}

/// The same sandbox in another phase.
pub(super) fn in_phase(record: &SandboxRecord, phase: Phase) -> SandboxRecord {
    SandboxRecord { phase, ..record.clone() }
}

/// The same sandbox, gone at that moment.
pub(super) fn terminated(record: &SandboxRecord, seconds: i64) -> SandboxRecord {
    let tombstone = Tombstone { cause: "deleted".to_owned(), message: "somebody asked".to_owned(), at: at(seconds) };
    SandboxRecord { phase: Phase::Terminated, tombstone: Some(tombstone), slot: None, ..record.clone() }
}

/// A checkpoint of a sandbox as it is; larger numbers are younger.
pub(super) fn checkpoint(origin: &SandboxRecord, number: u64) -> CheckpointRecord {
    CheckpointRecord {
        id: CheckpointId::from_parts(1_800_000_000_000 + number, u128::from(number)),
        created_at: at(0),
        comment: Some("before the upgrade".to_owned()),
        transient: false,
        automatic: true,
        from: roost_model::Origin::Outside,
        memory: true,
        parent: origin.checkpoint.clone(),
        bytes: CheckpointBytes { memory: u64::MAX, disk_exclusive: 2, disk_referenced: 3 },
        image_version: Some("native 1".to_owned()),
        processes: vec![SavedProcess { pid: 1, name: "guest".to_owned() }],
        not_kept: vec![NotKept { what: "tcp".to_owned(), why: "external connection".to_owned() }],
        origin: origin.clone(),
    }
}

/// The same sandbox, standing on a checkpoint.
pub(super) fn standing_on(record: &SandboxRecord, checkpoint: &CheckpointRecord) -> SandboxRecord {
    SandboxRecord { checkpoint: Some(checkpoint.id.clone()), ..record.clone() }
}

/// What a checkpoint might have cost.
pub(super) fn receipt(checkpoint: &CheckpointRecord) -> Receipt {
    Receipt {
        checkpoint: Some(checkpoint.id.clone()),
        kept: vec!["files".to_owned()],
        bytes: BTreeMap::from([("memory".to_owned(), u64::MAX)]),
        paused_ms: Some(0.1 + 0.2),
        parts_ms: BTreeMap::from([("dump".to_owned(), 88.123_456_789)]),
        ..Receipt::new(Operation::Checkpoint, 1)
    }
}
