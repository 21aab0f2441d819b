//! Lists of sandboxes, page by page.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::header::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use roost_host::Handle;
use roost_model::{SandboxView, State as Stage};
use serde::Deserialize;

use super::bodies::{Listed, Standing};
use super::extract::E2bQuery;
use super::metadata;
use super::visit::Visit;
use crate::e2b::wire_id;
use crate::error::E2bError;

const PAGE: usize = 100;

/// What a list may be asked.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListQuery {
    metadata: Option<String>,
    /// Words with commas between them.
    state: Option<String>,
    order: Option<String>,
    started_after: Option<String>,
    template: Option<String>,
    limit: Option<usize>,
    next_token: Option<String>,
}

/// The same, understood.
#[derive(Debug)]
struct Wanted {
    metadata: BTreeMap<String, String>,
    states: Vec<Standing>,
    oldest_first: bool,
    started_after: Option<Timestamp>,
    template: Option<String>,
    limit: usize,
    after: Option<Place>,
}

/// Where a sandbox stands in a list: by the time of its start, then by its id.
type Place = (i64, String);

impl ListQuery {
    fn understood(self) -> Result<Wanted, E2bError> {
        let unfit = |what: &str, value: &str| E2bError::bad_request(format!("`{what}={value}` does not fit"));
        let words = self.state.iter().flat_map(|words| words.split(',')).map(str::trim).filter(|word| !word.is_empty());
        let states = words.map(|word| Standing::parse(word).ok_or_else(|| unfit("state", word)));
        let started_after = self.started_after.map(|text| text.parse().map_err(|_| unfit("startedAfter", &text)));
        Ok(Wanted {
            metadata: metadata::filter(self.metadata.as_deref().unwrap_or_default())?,
            states: states.collect::<Result<_, _>>()?,
            oldest_first: match self.order.as_deref() {
                None | Some("desc") => false,
                Some("asc") => true,
                Some(other) => return Err(unfit("order", other)),
            },
            started_after: started_after.transpose()?,
            template: self.template,
            limit: match self.limit {
                None => PAGE,
                Some(limit) if (1..=PAGE).contains(&limit) => limit,
                Some(other) => return Err(unfit("limit", &other.to_string())),
            },
            after: match self.next_token.filter(|token| !token.is_empty()) {
                Some(token) => Some(place_of(&token).ok_or_else(|| unfit("nextToken", &token))?),
                None => None,
            },
        })
    }
}

impl Wanted {
    fn fits(&self, view: &SandboxView) -> bool {
        let labels = || metadata::from_labels(&view.labels);
        let named = |wanted: &String| view.template == *wanted || view.template.split(':').next() == Some(wanted);
        view.state != Stage::Terminated
            && (self.states.is_empty() || self.states.contains(&Standing::of(view)))
            && self.started_after.is_none_or(|moment| view.created_at > moment)
            && self.template.as_ref().is_none_or(named)
            && (self.metadata.is_empty() || {
                let labels = labels();
                self.metadata.iter().all(|(key, value)| labels.get(key) == Some(value))
            })
    }

    /// The page, and where the next one starts.
    fn page(&self, views: Vec<SandboxView>) -> (Vec<SandboxView>, Option<String>) {
        let mut fitting: Vec<(Place, SandboxView)> =
            views.into_iter().filter(|view| self.fits(view)).map(|view| (place(&view), view)).collect();
        fitting.sort_by(|(a, _), (b, _)| if self.oldest_first { a.cmp(b) } else { b.cmp(a) });
        if let Some(after) = &self.after {
            fitting.retain(|(place, _)| if self.oldest_first { place > after } else { place < after });
        }
        let more = fitting.len() > self.limit;
        fitting.truncate(self.limit);
        let next = fitting.last().filter(|_| more).map(|((start, id), _)| format!("{start}-{id}"));
        (fitting.into_iter().map(|(_, view)| view).collect(), next)
    }
}

fn place(view: &SandboxView) -> Place {
    (view.created_at.as_microsecond(), wire_id(&view.id).to_owned())
}

fn place_of(token: &str) -> Option<Place> {
    let (start, id) = token.split_once('-')?;
    Some((start.parse().ok()?, id.to_owned()))
}

/// `GET /v2/sandboxes`.
pub(crate) async fn list(
    e2b: Visit,
    E2bQuery(query): E2bQuery<ListQuery>,
) -> Result<(HeaderMap, Json<Vec<Listed>>), E2bError> {
    let wanted = query.understood()?;
    let views: Vec<SandboxView> = e2b.visitor().handles().iter().map(Handle::view).collect();
    let running = views.iter().filter(|view| Standing::of(view) == Standing::Running).count();
    let (page, next) = wanted.page(views);
    let mut headers = HeaderMap::new();
    headers.insert("x-total-running", HeaderValue::from(running));
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        headers.insert("x-next-token", next);
    }
    Ok((headers, Json(page.iter().map(Listed::of).collect())))
}

/// `GET /sandboxes`, which older clients call: those that run, all at once.
pub(crate) async fn list_running(
    e2b: Visit,
    E2bQuery(query): E2bQuery<ListQuery>,
) -> Result<Json<Vec<Listed>>, E2bError> {
    let query = ListQuery { metadata: query.metadata, ..ListQuery::default() };
    let wanted = Wanted { states: vec![Standing::Running], limit: usize::MAX, ..query.understood()? };
    let (all, _) = wanted.page(e2b.visitor().handles().iter().map(Handle::view).collect());
    Ok(Json(all.iter().map(Listed::of).collect()))
}

#[cfg(test)]
mod tests {
    use roost_model::{EngineKind, IdlePolicy, Limits, NetworkPolicy, OnTtl, PortAccess, SandboxId};

    use super::*;

    fn view(start: i64, label: &str, paused: bool) -> SandboxView {
        let at = Timestamp::from_second(start).unwrap();
        SandboxView {
            id: SandboxId::from_parts(u64::try_from(start).unwrap(), 1),
            name: "box".parse().unwrap(),
            state: if paused { Stage::Suspended } else { Stage::Active },
            level: None,
            engine: EngineKind::Native,
            template: "base:v2".to_owned(),
            ephemeral: false,
            created_at: at,
            state_since: at,
            generation: 1,
            parent: None,
            limits: Limits::default(),
            idle: IdlePolicy::default(),
            quiet_since: None,
            ttl: None,
            expires_at: None,
            on_ttl: OnTtl::Delete,
            stays: paused,
            auto_resume: false,
            port_access: PortAccess::Private,
            labels: BTreeMap::from([("team".to_owned(), label.to_owned())]),
            env: BTreeMap::new(),
            network: NetworkPolicy::default(),
            capabilities: std::collections::BTreeSet::new(),
            ports: Vec::new(),
            reason: None,
            tombstone: None,
            warnings: Vec::new(),
        }
    }

    fn starts(query: ListQuery) -> (Vec<i64>, Option<String>) {
        let views = vec![view(2, "b", false), view(1, "a", true), view(3, "a", false)];
        let (page, next) = query.understood().unwrap().page(views);
        (page.iter().map(|view| view.created_at.as_second()).collect(), next)
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn the_newest_come_first_page_by_page() {
        assert_eq!(starts(ListQuery::default()), (vec![3, 2, 1], None));
        for (order, first, second) in [("asc", vec![1, 2], vec![3]), ("desc", vec![3, 2], vec![1])] {
            let query =
                |next_token| ListQuery { order: text(order), limit: Some(2), next_token, ..ListQuery::default() };
            let (page, next) = starts(query(None));
            assert_eq!(page, first);
            assert_eq!(starts(query(next)), (second, None));
        }
    }

    #[test]
    fn a_list_is_narrowed_by_everything_that_is_asked() {
        let only = |query| starts(query).0;
        assert_eq!(only(ListQuery { state: text("paused"), ..ListQuery::default() }), [1]);
        assert_eq!(only(ListQuery { state: text("running,paused"), ..ListQuery::default() }), [3, 2, 1]);
        assert_eq!(only(ListQuery { metadata: text("team=a"), ..ListQuery::default() }), [3, 1]);
        assert_eq!(only(ListQuery { template: text("base"), ..ListQuery::default() }), [3, 2, 1]);
        assert_eq!(only(ListQuery { template: text("other"), ..ListQuery::default() }), Vec::<i64>::new());
        let later = ListQuery { started_after: text("1970-01-01T00:00:02Z"), ..ListQuery::default() };
        assert_eq!(only(later), [3]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for query in [
            ListQuery { state: text("asleep"), ..ListQuery::default() },
            ListQuery { order: text("up"), ..ListQuery::default() },
            ListQuery { limit: Some(0), ..ListQuery::default() },
            ListQuery { limit: Some(101), ..ListQuery::default() },
            ListQuery { next_token: text("x"), ..ListQuery::default() },
            ListQuery { started_after: text("soon"), ..ListQuery::default() },
        ] {
            assert_eq!(query.understood().unwrap_err().status(), 400);
        }
    }
}
