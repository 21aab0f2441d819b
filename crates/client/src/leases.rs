//! Holds, which keep a sandbox awake, and alarms, which wake it.

use hyper::Method;
use roost_model::{Alarm, Hold, Page, PutAlarm, PutHold};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::route::Route;
use crate::{Client, ClientError};

impl Client {
    /// Keeps a sandbox awake for a while; a hold of the same name is renewed, one without gets a made-up one.
    pub async fn put_hold(&self, sandbox: &str, hold: Option<&str>, wanted: &PutHold) -> Result<Hold, ClientError> {
        self.put_lease(sandbox, "holds", hold, wanted).await
    }

    /// What keeps a sandbox awake.
    pub async fn list_holds(&self, sandbox: &str) -> Result<Vec<Hold>, ClientError> {
        let page: Page<Hold> = self.get_json(Route::sandbox(sandbox).part("holds")).await?;
        Ok(page.items)
    }

    /// One hold.
    pub async fn hold(&self, sandbox: &str, hold: &str) -> Result<Hold, ClientError> {
        self.get_json(Route::sandbox(sandbox).part("holds").part(hold)).await
    }

    /// Ends a hold before its time.
    pub async fn release_hold(&self, sandbox: &str, hold: &str) -> Result<(), ClientError> {
        self.delete(Route::sandbox(sandbox).part("holds").part(hold)).await
    }

    /// Has a sandbox woken; an alarm of the same name is replaced, one without gets a made-up one.
    pub async fn put_alarm(&self, sandbox: &str, alarm: Option<&str>, wanted: &PutAlarm) -> Result<Alarm, ClientError> {
        self.put_lease(sandbox, "alarms", alarm, wanted).await
    }

    /// What wakes a sandbox.
    pub async fn list_alarms(&self, sandbox: &str) -> Result<Vec<Alarm>, ClientError> {
        let page: Page<Alarm> = self.get_json(Route::sandbox(sandbox).part("alarms")).await?;
        Ok(page.items)
    }

    /// One alarm.
    pub async fn alarm(&self, sandbox: &str, alarm: &str) -> Result<Alarm, ClientError> {
        self.get_json(Route::sandbox(sandbox).part("alarms").part(alarm)).await
    }

    /// Removes an alarm.
    pub async fn delete_alarm(&self, sandbox: &str, alarm: &str) -> Result<(), ClientError> {
        self.delete(Route::sandbox(sandbox).part("alarms").part(alarm)).await
    }

    async fn put_lease<T: DeserializeOwned>(
        &self,
        sandbox: &str,
        kind: &str,
        name: Option<&str>,
        wanted: &(impl Serialize + Sync),
    ) -> Result<T, ClientError> {
        let route = Route::sandbox(sandbox).part(kind);
        let answer = match name {
            Some(name) => self.send_json(Method::PUT, route.part(name), wanted, None).await?,
            None => self.send_json(Method::POST, route, wanted, None).await?,
        };
        answer.json().await
    }
}
