//! Effects on a sandbox's memory: freezing, thawing, images, and telling its guest that time has passed.

mod greetings;
mod images;
mod sealer;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use roost_disk::{Depth, Image, ImageError, Maker};
use roost_lifecycle::ImageUse;
use roost_model::{SandboxId, chain};
use roost_net::{NoConnects, Slot};
use roost_store::{SandboxRecord, Source};
use roost_wire::client::Connection;
use roost_wire::{Key, Request, Resumed, Why};

use crate::account::Account;
use crate::convert::{default_place, service_set};
use crate::effects::{Effects, disk_error};
use crate::failpoint::{fail_point, image_room};
use crate::guest::Guest;
use crate::{HostError, blocking};

pub(crate) use greetings::Greetings;
pub(crate) use images::images_of;
use sealer::Quiet;
pub(crate) use sealer::Sealer;

/// How long a guest may take to answer after a restore; it has nothing to read from disk but itself.
const GREETING: Duration = Duration::from_secs(10);

/// The image that a sandbox's memory comes from.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Where the engine's files are.
    pub(crate) image: PathBuf,
    /// The key that the guest in it knows.
    key: String,
    why: Why,
    /// Nothing is hashed while a sandbox comes back.
    _quiet: Quiet,
}

impl Effects {
    /// The image its next start comes from; none means a start from files.
    pub(crate) async fn image_of(&self, record: &SandboxRecord) -> Result<Option<Origin>, HostError> {
        let here = self.maker();
        let quiet = self.shared.sealer.quiet();
        if let Some(source) = &record.source {
            let moment = self.shared.moment(source).await?;
            if !moment.memory {
                return Ok(None);
            }
            let (pool, from) = (self.shared.pool.clone(), source.clone());
            let image = blocking(move || {
                let saved = match from {
                    Source::Checkpoint(id) => pool.checkpoint(id.as_str())?,
                    Source::Template(id) => pool.seed(id.as_str())?,
                };
                saved.image()?.map(|image| readable(&image, &here)).transpose()
            });
            let Some(image) = image.await.map_err(image_error)? else {
                return Err(HostError::ImageIncompatible("the memory of that moment is missing".to_owned()));
            };
            let why = if moment.origin.id == record.id { Why::Restore } else { Why::Fork };
            return Ok(Some(Origin { image, key: moment.origin.key, why, _quiet: quiet }));
        }
        let Some(image) = record.image.clone() else { return Ok(None) };
        let pool = self.shared.pool.clone();
        let image = blocking(move || readable(&pool.image(&image)?, &here)).await.map_err(image_error)?;
        Ok(Some(Origin { image, key: record.key.clone(), why: Why::Wake, _quiet: quiet }))
    }

    /// Who makes images here.
    pub(crate) fn maker(&self) -> Maker {
        let version = self.engine.image_version().unwrap_or_default();
        Maker { engine: self.engine.kind().to_string(), version, cpu: String::new() }
    }

    pub(crate) async fn freeze(&self, record: &SandboxRecord) -> Result<(), HostError> {
        self.greeted(&record.id).await;
        Ok(self.engine.freeze(&record.id).await?)
    }

    /// Lets it go on. Its guest hears of it in its own time: nobody waits for that.
    pub(crate) async fn thaw(&self, record: &SandboxRecord) -> Result<(), HostError> {
        self.engine.thaw(&record.id).await?;
        if record.asleep_since.is_some() {
            self.greet_soon(record);
        }
        Ok(())
    }

    /// Freezes it and writes its memory to an image that is whole when this returns; it stays frozen either way.
    pub(crate) async fn save(&self, record: &mut SandboxRecord, account: &mut Account) -> Result<(), HostError> {
        let room = self.admit_image(record, ImageUse::Passing, None).await?;
        self.greeted(&record.id).await;
        let _quiet = self.shared.sealer.quiet();
        let since = Instant::now();
        self.flush_ahead(&record.id).await;
        self.engine.prepare_dump(&record.id).await?;
        account.part("flush", since);
        fail_point("save-flushed");
        let _whole = self.no_half_made_connections(record).await;
        account.pause();
        let since = Instant::now();
        self.engine.freeze(&record.id).await?;
        account.part("freeze", since);
        fail_point("save-frozen");

        let (pool, maker) = (self.shared.pool.clone(), self.maker());
        let mut staged = blocking(move || {
            let mut staged = pool.stage_image()?;
            staged.write_behind()?;
            Ok(staged)
        })
        .await
        .map_err(image_error)?;
        fail_point("save-staged");
        let memory = staged.memory();
        // Beside the dump: what was written since the flush has to last as long as the memory that knows of it.
        let (dumped, written) = tokio::join!(self.dump(&record.id, &memory, room, account), self.write_out(&record.id));
        dumped?;
        written?;
        fail_point("save-dumped");
        let since = Instant::now();
        // Named after the sandbox and the moment: one that is left behind by a crash can be told from the one in use.
        let name = format!("{}-{}", record.id, Timestamp::now().as_microsecond());
        let saved = name.clone();
        let image = blocking(move || {
            staged.finish(&maker)?;
            fail_point("save-described");
            staged.commit(&saved)
        });
        self.shared.sealer.later(image.await.map_err(image_error)?);
        account.part("commit", since);
        fail_point("save-committed");
        // What the daemon still held of its connections leads nowhere after a wake.
        self.shared.guests.forget(&record.id);
        record.image = Some(name);
        Ok(())
    }

    /// Lets nobody connect to it while the result is held, which is from before it stands still until its memory is saved: not
    /// every kernel can save a connection of which only a half is there.
    pub(crate) async fn no_half_made_connections(&self, record: &SandboxRecord) -> Option<NoConnects> {
        self.shared.network.hold_connects(Slot(record.slot?)).await
    }

    /// Dumps a frozen sandbox into a folder and writes down what that kept and cost.
    pub(crate) async fn dump(
        &self,
        id: &SandboxId,
        into: &std::path::Path,
        room: u64,
        account: &mut Account,
    ) -> Result<(), HostError> {
        let room = image_room(room);
        let since = Instant::now();
        let dumped = self.engine.dump(id, into, room).await?;
        account.part("dump", since);
        if dumped.bytes > room {
            // An engine refuses this by itself, while it writes.
            let (bytes, room) = (dumped.bytes >> 20, room >> 20);
            return Err(HostError::MemoryNotSaved(format!(
                "its image takes {bytes} MiB, and {room} MiB are left for it"
            )));
        }
        account.bytes.insert("memory".to_owned(), dumped.bytes);
        account.not_kept.extend(dumped.not_kept);
        account.processes = dumped.processes;
        Ok(())
    }

    /// Makes all that it has written durable.
    async fn write_out(&self, id: &SandboxId) -> Result<(), HostError> {
        let (pool, name) = (self.shared.pool.clone(), id.clone());
        blocking(move || pool.flush_ahead(name.as_str())).await.map_err(disk_error)
    }

    /// Writes out what is dirty while it still runs, so that the pause does not have to.
    pub(crate) async fn flush_ahead(&self, id: &SandboxId) {
        if let Err(error) = self.write_out(id).await {
            tracing::debug!(sandbox = %id, error = %chain(&error), "could not flush ahead");
        }
    }

    /// Removes an image that no record names any more; one that stays is swept at the next start of the daemon.
    pub(crate) async fn delete_image(&self, id: &SandboxId, image: String) {
        let pool = self.shared.pool.clone();
        if let Err(error) = blocking(move || pool.delete_image(&image)).await {
            tracing::warn!(sandbox = %id, error = %chain(&error), "could not remove its image");
        }
    }

    /// Takes a sandbox over that an earlier daemon was waking, if its guest answers.
    pub(crate) async fn adopt(&self, record: &SandboxRecord) -> Result<(), HostError> {
        let origin = self.image_of(record).await?;
        self.introduce(record, origin.as_ref()).await
    }

    /// Tells the guest who it is now and that it slept; a guest out of an image answers to the key of that moment.
    pub(crate) async fn introduce(&self, record: &SandboxRecord, origin: Option<&Origin>) -> Result<(), HostError> {
        let guest = Guest::of(self.shared.clone(), record)?;
        let key = |text: &str| Key::from_hex(text).map_err(|error| HostError::Internal(error.to_string()));
        let known = key(origin.map_or(&record.key, |origin| &origin.key))?;
        let asleep = record.asleep_since.map(|since| Timestamp::now().duration_since(since).as_millis());
        let resumed = Resumed {
            why: origin.map_or(Why::Wake, |origin| origin.why),
            from_image: origin.is_some(),
            id: record.id.to_string(),
            name: record.name.to_string(),
            hostname: record.name.to_string(),
            generation: record.generation,
            key: Some(key(&record.key)?),
            env: Some(record.env.clone()),
            asleep_ms: asleep.and_then(|time| u64::try_from(time).ok()).unwrap_or(0),
            place: Some(default_place(record)),
            services: service_set(&record.services),
        };
        let tell = async {
            let mut connection = Connection::new(guest.dial().await?, &known).map_err(|error| guest.failed(error))?;
            connection.call_done(&Request::Resumed(resumed)).await.map_err(|error| guest.failed(error))
        };
        match tokio::time::timeout(GREETING, tell).await {
            Ok(told) => told,
            Err(_) => Err(guest.silent()),
        }
    }
}

/// The engine's files of an image that can be read here and is what was written.
fn readable(image: &Image, here: &Maker) -> Result<PathBuf, ImageError> {
    image.check_maker(here)?;
    // The pages themselves are under the filesystem's own checksums; hashing them would take longer than loading them.
    image.verify(Depth::Description)?;
    Ok(image.memory())
}

pub(crate) fn image_error(error: ImageError) -> HostError {
    match &error {
        // One that is gone is of as little use as one that does not fit: the files are still there.
        ImageError::Unfit { .. }
        | ImageError::Format { .. }
        | ImageError::Damaged { .. }
        | ImageError::NotFound { .. } => HostError::ImageIncompatible(chain(&error)),
        full if full.is_full() => HostError::HostFull(chain(&error)),
        _ => HostError::MemoryNotSaved(chain(&error)),
    }
}
