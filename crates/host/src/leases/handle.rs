//! Holds and alarms of one sandbox, as every surface asks for them.

use jiff::Timestamp;
use roost_model::{Alarm, Hold, Name, Origin, PutAlarm, PutHold};

use crate::handle::Handle;
use crate::{HostError, blocking};

impl Handle {
    /// What keeps it awake now; cheap.
    pub fn holds(&self) -> Vec<Hold> {
        self.shared.holds_of(&self.id)
    }

    /// One hold.
    pub fn hold(&self, id: &str) -> Result<Hold, HostError> {
        let found = self.holds().into_iter().find(|hold| hold.id.as_str() == id);
        found.ok_or_else(|| HostError::HoldNotFound(id.to_owned()))
    }

    /// Takes a hold or renews the one of that name; says whether it is a new one. A sandbox that sleeps sleeps on.
    pub async fn put_hold(&self, id: Option<&str>, wanted: PutHold) -> Result<(Hold, bool), HostError> {
        self.put_hold_from(id, wanted, Origin::Outside).await
    }

    pub(crate) async fn put_hold_from(
        &self,
        id: Option<&str>,
        wanted: PutHold,
        from: Origin,
    ) -> Result<(Hold, bool), HostError> {
        self.living()?;
        let id: Option<Name> = id.map(str::parse).transpose()?;
        let (leases, owner) = (self.shared.leases.clone(), self.id.clone());
        let held = blocking(move || leases.put_hold(&owner, id, wanted, from)).await?;
        self.guards.tell();
        Ok(held)
    }

    /// Ends a hold before its time.
    pub async fn release_hold(&self, id: &str) -> Result<(), HostError> {
        self.living()?;
        let missing = || HostError::HoldNotFound(id.to_owned());
        let name: Name = id.parse().map_err(|_| missing())?;
        let (leases, owner) = (self.shared.leases.clone(), self.id.clone());
        let was_there = blocking(move || leases.release(&owner, &name)).await?;
        // What it held up may sleep now.
        self.guards.tell();
        if was_there { Ok(()) } else { Err(missing()) }
    }

    /// What wakes it, by name.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.shared.leases.book().alarms(&self.id)
    }

    /// When it will be woken next.
    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.shared.next_alarm(&self.id)
    }

    /// One alarm.
    pub fn alarm(&self, id: &str) -> Result<Alarm, HostError> {
        let found = self.alarms().into_iter().find(|alarm| alarm.id.as_str() == id);
        found.ok_or_else(|| HostError::AlarmNotFound(id.to_owned()))
    }

    /// Sets an alarm, in the place of one of that name; says whether it is a new one.
    pub async fn put_alarm(&self, id: Option<&str>, wanted: PutAlarm) -> Result<(Alarm, bool), HostError> {
        self.put_alarm_from(id, wanted, Origin::Outside).await
    }

    pub(crate) async fn put_alarm_from(
        &self,
        id: Option<&str>,
        wanted: PutAlarm,
        from: Origin,
    ) -> Result<(Alarm, bool), HostError> {
        self.living()?;
        let id: Option<Name> = id.map(str::parse).transpose()?;
        let (leases, owner) = (self.shared.leases.clone(), self.id.clone());
        blocking(move || leases.put_alarm(&owner, id, wanted, from)).await
    }

    /// Removes an alarm.
    pub async fn delete_alarm(&self, id: &str) -> Result<(), HostError> {
        self.living()?;
        let missing = || HostError::AlarmNotFound(id.to_owned());
        let name: Name = id.parse().map_err(|_| missing())?;
        let (leases, owner) = (self.shared.leases.clone(), self.id.clone());
        if blocking(move || leases.unset(&owner, &name)).await? { Ok(()) } else { Err(missing()) }
    }
}
