//! Services: named processes that a sandbox keeps up.

use hyper::Method;
use roost_model::{Page, ServiceSpec, ServiceView};

use crate::route::Route;
use crate::{Client, ClientError, Download};

fn services(sandbox: &str) -> Route {
    Route::sandbox(sandbox).part("services")
}

impl Client {
    /// The services of a sandbox, by name.
    pub async fn list_services(&self, sandbox: &str) -> Result<Vec<ServiceView>, ClientError> {
        let page: Page<ServiceView> = self.get_json(services(sandbox)).await?;
        Ok(page.items)
    }

    /// One service.
    pub async fn service(&self, sandbox: &str, service: &str) -> Result<ServiceView, ClientError> {
        self.get_json(services(sandbox).part(service)).await
    }

    /// Makes a service, or puts it in the place of one of its name.
    pub async fn put_service(
        &self,
        sandbox: &str,
        service: &str,
        spec: &ServiceSpec,
    ) -> Result<ServiceView, ClientError> {
        self.send_json(Method::PUT, services(sandbox).part(service), spec, None).await?.json().await
    }

    /// Stops a service, forgets it and removes its log.
    pub async fn delete_service(&self, sandbox: &str, service: &str) -> Result<(), ClientError> {
        self.delete(services(sandbox).part(service)).await
    }

    /// Starts a service and waits until it is up.
    pub async fn start_service(&self, sandbox: &str, service: &str) -> Result<ServiceView, ClientError> {
        self.plain(Method::POST, services(sandbox).part(service).part("start")).await?.json().await
    }

    /// Stops a service until it is started again.
    pub async fn stop_service(&self, sandbox: &str, service: &str) -> Result<ServiceView, ClientError> {
        self.plain(Method::POST, services(sandbox).part(service).part("stop")).await?.json().await
    }

    /// Stops a service, starts it again and waits until it is up.
    pub async fn restart_service(&self, sandbox: &str, service: &str) -> Result<ServiceView, ClientError> {
        self.plain(Method::POST, services(sandbox).part(service).part("restart")).await?.json().await
    }

    /// A service's log from an offset; with `follow`, until the service is removed.
    pub async fn service_logs(
        &self,
        sandbox: &str,
        service: &str,
        offset: u64,
        follow: bool,
    ) -> Result<Download, ClientError> {
        let route = services(sandbox).part(service).part("logs").query("offset", offset).query("follow", follow);
        Ok(Download::new(self.get(route).await?))
    }
}
