//! Keeping the server of a proxy in a cluster, and reporting to the operator what `/health` calls starting or degraded, on transitions
//! only.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use skep_workload::cluster::{Cluster, State};
use skep_workload::report::{Problem, Reported, UpstreamState, pod_name};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::health::Health;

/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How long a server must be unusable to be reported. A pod that is replaced is away for a moment. The operator takes a backend
/// without a readiness probe for ready no sooner, and this starts before the backend has a pod.
const SETTLES: Duration = Duration::from_secs(2);
/// How long to wait after a report failed, or found no object to report on.
const AGAIN: Duration = Duration::from_secs(10);
/// How often a report is checked while its problem lasts: another proxy may hold the annotation, or have taken it away.
const RECHECK: Duration = Duration::from_secs(30);

/// Keeps a server in a cluster. One that cannot be changed, or cannot be run as it should be, serves as it was if it is there,
/// and the health says why.
pub(super) async fn keep(cluster: Arc<Cluster>, state: watch::Sender<State>, health: Arc<Health>) {
    let (counted, counts) = watch::channel(State::Missing);
    let kept = async {
        let wrong = cluster.keep(&counted, |failed| health.refuse(failed.map(ToString::to_string))).await;
        tracing::error!(%wrong, "server not applied; correct its spec");
        cluster.watch(&counted).await;
    };
    tokio::select! {
        () = kept => {}
        () = cluster.explain(counts, &state) => {}
        () = report(&cluster, state.subscribe(), &health) => {}
    }
}

/// Reports for as long as it is polled. Without the name of its pod, a proxy has no way to.
async fn report(cluster: &Cluster, mut state: watch::Receiver<State>, health: &Health) {
    let Some(pod) = pod_name(Path::new(ACCOUNT)) else { return std::future::pending().await };
    let mut pace = Pace::default();
    loop {
        // Subscribed to before it is read: whatever changes from now on is noticed.
        let changed = changed(health, &mut state);
        let now = state.borrow_and_update().clone();
        let problem = reportable(health, &now, &pace.noted);
        let Some(due) = pace.due(problem.as_ref(), Instant::now()) else {
            changed.await;
            continue;
        };
        if tokio::time::timeout_at(due, changed).await.is_ok() {
            continue;
        }
        match cluster.report(&pod, problem.as_ref()).await {
            Ok(Reported::Written | Reported::Unchanged | Reported::ByAnother) => pace.reported(problem, Instant::now()),
            Ok(Reported::NoObject) => pace.failed(Instant::now()),
            Err(error) => {
                tracing::warn!(%error, "state of the server not reported");
                pace.failed(Instant::now());
            }
        }
    }
}

/// What the annotation says of this proxy.
#[derive(Debug, Default, PartialEq)]
enum Noted {
    /// That is not known.
    #[default]
    Unknown,
    /// Nothing.
    Nothing,
    /// This, or what another proxy reported first.
    Problem(Problem),
}

/// When to report, from what was reported and for how long it has been so.
#[derive(Debug, Default)]
struct Pace {
    noted: Noted,
    /// What will be reported if it lasts, and since when it has.
    lasting: Option<(Problem, Instant)>,
    /// When a report is checked again, or retried after one that failed.
    again: Option<Instant>,
}

impl Pace {
    /// When to report, if nothing changes until then. Nothing if there is nothing to report.
    fn due(&mut self, problem: Option<&Problem>, now: Instant) -> Option<Instant> {
        // After a failure the report is retried with a delay, whatever changes meanwhile.
        let earliest = self.again.filter(|_| self.noted == Noted::Unknown).unwrap_or(now);
        let Some(problem) = problem else {
            self.lasting = None;
            return (self.noted != Noted::Nothing).then_some(earliest);
        };
        if matches!(&self.noted, Noted::Problem(noted) if noted == problem) {
            self.lasting = None;
            return self.again;
        }
        let lasting = self.lasting.take().filter(|(known, _)| known == problem);
        let (_, since) = self.lasting.insert(lasting.unwrap_or_else(|| (problem.clone(), now)));
        Some((*since + SETTLES).max(earliest))
    }

    fn reported(&mut self, problem: Option<Problem>, now: Instant) {
        self.noted = problem.map_or(Noted::Nothing, Noted::Problem);
        self.again = Some(now + RECHECK);
    }

    fn failed(&mut self, now: Instant) {
        (self.noted, self.again) = (Noted::Unknown, Some(now + AGAIN));
    }
}

/// What there is to report. While no pod of the server is ready, the operator sees that itself: whatever the details are, the last report
/// stays, so that a crash loop is not a loop of writes.
fn reportable(health: &Health, state: &State, noted: &Noted) -> Option<Problem> {
    let problem = health.problem()?;
    if state.serves() {
        return Some(problem);
    }
    if let Noted::Problem(last) = noted {
        return Some(last.clone());
    }
    let message = "the server is being started".to_owned();
    Some(Problem { state: UpstreamState::Starting, message, answered: problem.answered })
}

/// Ends once something else may have to be reported than when this was called.
fn changed(health: &Health, state: &mut watch::Receiver<State>) -> impl Future<Output = ()> + use<> {
    let (health, mut state) = (health.changed(), state.clone());
    state.mark_unchanged();
    async move {
        tokio::select! {
            () = health => {}
            Ok(()) = state.changed() => {}
            else => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use skep_net::Drain;
    use skep_net::drain::Grace;

    use super::*;
    use crate::health::ServerHealth;

    #[test]
    fn a_problem_is_reported_once_it_lasts_and_checked_while_it_does() {
        let problem = |message: &str| {
            Some(Problem { state: UpstreamState::Degraded, answered: true, message: message.to_owned() })
        };
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(pace.due(None, at(0)), Some(at(0)), "an old report of its own is taken away at once");
        pace.reported(None, at(0));
        assert_eq!(pace.due(None, at(1)), None);
        // Health checks that fail again and again say nothing new.
        assert_eq!(pace.due(problem("a").as_ref(), at(1)), Some(at(3)));
        assert_eq!(pace.due(problem("a").as_ref(), at(2)), Some(at(3)));
        assert_eq!(pace.due(problem("b").as_ref(), at(2)), Some(at(4)), "another one has to last as well");
        assert_eq!(pace.due(None, at(3)), None, "it did not last");
        assert_eq!(pace.due(problem("b").as_ref(), at(4)), Some(at(6)));
        pace.reported(problem("b"), at(6));
        assert_eq!(pace.due(problem("b").as_ref(), at(7)), Some(at(36)), "another proxy may take it away");
        assert_eq!(pace.due(None, at(8)), Some(at(8)), "a recovery is reported at once");
        // The API server is away.
        pace.failed(at(8));
        assert_eq!(pace.due(None, at(9)), Some(at(18)));
        assert_eq!(pace.due(problem("c").as_ref(), at(9)), Some(at(18)));
        assert_eq!(pace.due(problem("c").as_ref(), at(17)), Some(at(18)));
    }

    #[test]
    fn a_crash_loop_is_one_report() {
        let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
        let health = Health::new("stdio", drain);
        let down = State::Starting { ready: 0, wanted: 1 };
        let (mut noted, mut reports) = (Noted::Nothing, Vec::new());
        let mut see = |known: Option<ServerHealth>, state: &State| {
            if let Some(known) = known {
                health.set(known);
            }
            let now = reportable(&health, state, &noted).map_or(Noted::Nothing, Noted::Problem);
            if noted != now {
                reports.push(match &now {
                    Noted::Problem(problem) => Some(problem.message.clone()),
                    _ => None,
                });
                noted = now;
            }
        };
        see(None, &down);
        for _restart in 0..5 {
            see(None, &State::Ready);
            see(Some(ServerHealth::Unavailable("the server ended: exit status: 1".to_owned())), &State::Ready);
            see(Some(ServerHealth::Starting("none of 1 pods of the server is ready".to_owned())), &down);
            see(
                Some(ServerHealth::Unavailable("CrashLoopBackOff".to_owned())),
                &State::Failing("CrashLoopBackOff".to_owned()),
            );
            see(Some(ServerHealth::Unavailable("the server ended: exit status: 1".to_owned())), &down);
        }
        see(Some(ServerHealth::Available { milliseconds: None }), &State::Ready);
        let reasons = reports.iter().map(Option::as_deref).collect::<Vec<_>>();
        assert_eq!(reasons, [Some("the server is being started"), Some("the server ended: exit status: 1"), None]);
    }
}
