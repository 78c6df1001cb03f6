use super::*;
use crate::world::RolloutProgress;

/// What is the case, the workload, its pods, and what is expected.
type Case<'a> = (&'a str, LiveWorkload, Vec<LivePod>, (Stage, Serving));

const SECOND: &str = "2026-01-01T00:00:02Z";

fn stamps(checksum: &str) -> PodStamps {
    let checksum = checksum.to_owned();
    PodStamps::of(|name| (name == crate::pod::CHECKSUM).then_some(checksum.as_str()))
}

/// A pod of a revision, whose checksum is the part before the dash.
fn pod(name: &str, revision: &str, state: PodState) -> LivePod {
    let checksum = revision.split('-').next().unwrap();
    let created = if revision.ends_with("new") { SECOND } else { "2026-01-01T00:00:01Z" };
    let revision = Some(revision.to_owned());
    LivePod {
        name: name.to_owned(),
        uid: name.to_owned(),
        state,
        stamps: stamps(checksum),
        revision,
        created: created.to_owned(),
    }
}

fn crash() -> PodState {
    PodState::Failed(Failure { reason: "CrashLoopBackOff".to_owned(), message: "it fell".to_owned(), is_first: false })
}

/// A Deployment whose controller has observed its second generation: wanted, total, updated.
fn deployment(replicas: i32, total: i32, updated: i32) -> LiveWorkload {
    let progress = RolloutProgress { observed_generation: 2, total, updated, ..RolloutProgress::default() };
    LiveWorkload { replicas, generation: 2, progress, ..LiveWorkload::default() }
}

fn stage_of(workload: &LiveWorkload, pods: &[LivePod], was_ready: bool) -> (Stage, Serving) {
    let planned = stamps("b");
    let rollout = observe(Some(workload), pods, Planned::Stamped(&planned), was_ready);
    (rollout.stage, rollout.serving)
}

fn stalled(pod: &str) -> Stage {
    let PodState::Failed(failure) = crash() else { unreachable!("it was made one") };
    Stage::Stalled(Stall { pod: Some(pod.to_owned()), failure, is_final: true })
}

const fn rolling(ready: usize, wanted: i32) -> Stage {
    Stage::RollingOut(Count { ready, wanted })
}

const fn complete(ready: usize, wanted: i32) -> Stage {
    Stage::Complete(Count { ready, wanted })
}

#[test]
fn only_the_pods_of_the_current_plan_complete_a_rollout() {
    let (ready, pending) = (PodState::Ready, PodState::Pending);
    let old = || pod("old", "a", ready.clone());
    let cases: Vec<Case<'_>> = vec![
        ("nothing is there yet", deployment(1, 0, 0), vec![], (Stage::NotApplied, Serving::Nothing)),
        (
            "the first pod comes up",
            deployment(1, 1, 1),
            vec![pod("new", "b", pending.clone())],
            (rolling(0, 1), Serving::Nothing),
        ),
        (
            "the first pod serves",
            deployment(1, 1, 1),
            vec![pod("new", "b", ready.clone())],
            (complete(1, 1), Serving::Current),
        ),
        ("the old pod alone", deployment(1, 1, 0), vec![old()], (rolling(0, 1), Serving::Older)),
        (
            "the new pod comes up beside the old one",
            deployment(1, 2, 1),
            vec![pod("new", "b", pending.clone()), old()],
            (rolling(0, 1), Serving::Older),
        ),
        (
            "the new pod crashes beside a healthy old one",
            deployment(1, 2, 1),
            vec![pod("new", "b", crash()), old()],
            (stalled("new"), Serving::Older),
        ),
        (
            "the new pod serves and the old one has not gone",
            deployment(1, 2, 1),
            vec![pod("new", "b", ready.clone()), old()],
            (rolling(1, 1), Serving::Current),
        ),
        (
            "the old pod crashes and the new one comes up",
            deployment(1, 2, 1),
            vec![pod("new", "b", pending.clone()), pod("old", "a", crash())],
            (rolling(0, 1), Serving::Nothing),
        ),
        (
            "the old pod crashes and the change that may help was applied just now",
            deployment(1, 1, 0),
            vec![pod("old", "a", crash())],
            (rolling(0, 1), Serving::Nothing),
        ),
        (
            "the same stamps on another template",
            deployment(1, 2, 1),
            vec![pod("new", "b-new", crash()), pod("old", "b-old", ready.clone())],
            (stalled("new"), Serving::Older),
        ),
        ("scaled to zero", deployment(0, 0, 0), vec![], (Stage::Stopped, Serving::Nothing)),
    ];
    for (what, workload, pods, expected) in cases {
        assert_eq!(stage_of(&workload, &pods, false), expected, "{what}");
        // That it was ready before decides only about lost replicas.
        assert_eq!(stage_of(&workload, &pods, true), expected, "{what}, and was ready");
    }
}

#[test]
fn a_rollout_that_the_controller_has_not_observed_is_not_complete() {
    let mut workload = deployment(1, 1, 1);
    let pods = [pod("new", "b", PodState::Ready)];
    workload.progress.observed_generation = 1;
    assert_eq!(stage_of(&workload, &pods, true), (rolling(1, 1), Serving::Current));
}

#[test]
fn a_lost_replica_of_several_is_tolerated_once_all_were_there() {
    let pods = [pod("one", "b", PodState::Ready), pod("two", "b", PodState::Pending), pod("three", "b", crash())];
    let mut workload = deployment(3, 3, 3);
    assert_eq!(stage_of(&workload, &pods[..2], false).0, rolling(1, 3));
    assert_eq!(stage_of(&workload, &pods[..2], true).0, complete(1, 3));
    assert_eq!(stage_of(&workload, &pods, false).0, stalled("three"));
    workload.progress.completed = true;
    assert_eq!(stage_of(&workload, &pods, false).0, stalled("three"), "it completed with fewer replicas");
    assert_eq!(stage_of(&workload, &pods, true).0, complete(1, 3));
    assert_eq!(stage_of(&workload, &[pod("two", "b", PodState::Pending)], true).0, Stage::Unavailable);
    assert_eq!(stage_of(&workload, &pods[2..], true).0, stalled("three"));
}

#[test]
fn pods_that_cannot_be_created_stall_a_rollout_with_the_message_of_the_controller() {
    let mut workload = deployment(1, 1, 0);
    let failure = Failure { reason: "FailedCreate".to_owned(), message: "exceeded quota".to_owned(), is_first: false };
    workload.progress.failure = Some(failure.clone());
    let pods = [pod("old", "a", PodState::Ready)];
    let (stage, serving) = stage_of(&workload, &pods, true);
    assert_eq!((stage, serving), (Stage::Stalled(Stall { pod: None, failure, is_final: false }), Serving::Older));
}

#[test]
fn a_stateful_set_names_its_revision_and_an_old_pod_that_fails_is_not_why_it_stalls() {
    let mut set = deployment(1, 1, 0);
    set.progress.revision = Some("b-2".to_owned());
    let of = |pods: &[LivePod]| observe(Some(&set), pods, Planned::Revision, false).stage;
    assert_eq!(of(&[pod("s-0", "b-1", PodState::Ready)]), rolling(0, 1));
    assert_eq!(of(&[pod("s-0", "b-1", crash())]), rolling(0, 1));
    assert_eq!(of(&[pod("s-0", "b-2", crash())]), stalled("s-0"));
    assert_eq!(of(&[pod("s-0", "b-2", PodState::Ready)]), rolling(1, 1));
}

#[test]
fn only_failing_pods_of_an_older_revision_block_a_stateful_set_that_is_observed() {
    let mut set = deployment(3, 3, 1);
    set.progress.revision = Some("b-2".to_owned());
    let pods = [
        pod("s-0", "b-1", PodState::Ready),
        pod("s-1", "b-1", crash()),
        pod("s-2", "b-2", PodState::Pending),
        pod("s-3", "b-1", PodState::Pending),
    ];
    let blocked = |set: &LiveWorkload, pods: &[LivePod]| {
        blocking(Some(set), pods).map(|pod| pod.name.clone()).collect::<Vec<_>>()
    };
    let names = |set: &LiveWorkload| blocked(set, &pods);
    assert_eq!(names(&set), ["s-1"]);
    // The pod of the current template is what fails: the older ones are the last that serve.
    let mut broken = pods.clone();
    broken[2].state = crash();
    assert!(blocked(&set, &broken).is_empty());
    // One restart does not replace a pod that serves.
    let mut restarted = pods.clone();
    if let PodState::Failed(failure) = &mut restarted[1].state {
        failure.is_first = true;
    }
    assert!(blocked(&set, &restarted).is_empty());
    set.generation = 3;
    assert!(names(&set).is_empty(), "its controller has not seen the template");
    assert!(names(&deployment(3, 3, 1)).is_empty(), "a Deployment waits for no older pod");
}

#[test]
fn a_stateful_set_without_a_pod_says_so_once_it_is_observed_and_so_does_a_pod_that_does_not_go() {
    let reason = |set: &LiveWorkload| match observe(Some(set), &[], Planned::Revision, false).stage {
        Stage::Stalled(Stall { pod, failure, is_final: false }) => Some((pod, failure.reason)),
        _ => None,
    };
    let mut set = deployment(1, 0, 0);
    assert_eq!(reason(&set), None, "a Deployment has a condition for it");
    set.progress.revision = Some("b-2".to_owned());
    assert_eq!(reason(&set), Some((None, Failure::NO_PODS.to_owned())));
    set.progress.total = 1;
    assert_eq!(reason(&set), None, "its pod is not seen");
    set.hanging = vec!["s-0".to_owned()];
    assert_eq!(reason(&set), Some((Some("s-0".to_owned()), Failure::TERMINATING.to_owned())));
    (set.progress.total, set.generation) = (0, 3);
    set.hanging.clear();
    assert_eq!(reason(&set), None, "its controller has not seen it");
}

#[test]
fn a_stateful_set_whose_pods_are_not_seen_counts_them_itself() {
    let mut set = deployment(2, 2, 2);
    set.ready = 1;
    assert_eq!(observe(Some(&set), &[], Planned::Revision, false).serving, Serving::Current);
    set.ready = 2;
    assert_eq!(observe(Some(&set), &[], Planned::Revision, false).stage, complete(2, 2));
    assert_eq!(observe(Some(&set), &[], Planned::Stamped(&stamps("b")), false).stage, Stage::NotApplied);
}

/// A pod that the kubelet evicted.
fn evicted(name: &str, revision: &str, created: &str) -> LivePod {
    let failure =
        Failure { reason: "Evicted".to_owned(), message: format!("{name} used too much memory"), is_first: false };
    LivePod { created: created.to_owned(), ..pod(name, revision, PodState::Failed(failure)) }
}

fn end_of(pod: &LivePod) -> Stage {
    let PodState::Failed(failure) = pod.state.clone() else { unreachable!("it was made one") };
    Stage::Stalled(Stall { pod: Some(pod.name.clone()), failure, is_final: false })
}

#[test]
fn pods_that_the_kubelet_ended_say_why_none_is_ready_and_nothing_once_one_is() {
    let first = evicted("first", "b", "2026-01-01T00:00:01Z");
    let mut workload = deployment(2, 2, 2);
    workload.ended = vec![evicted("a-later-one", "b", SECOND), first.clone()];
    let pending = || pod("new", "b", PodState::Pending);
    let ready = || pod("ready", "b", PodState::Ready);
    assert_eq!(stage_of(&workload, &[pending()], false), (end_of(&first), Serving::Nothing));
    assert_eq!(stage_of(&workload, &[], true), (end_of(&first), Serving::Nothing), "between two attempts");
    assert_eq!(stage_of(&workload, &[pod("new", "b", crash())], false).0, stalled("new"), "what fails now comes first");
    assert_eq!(stage_of(&workload, &[pending(), ready()], false).0, rolling(1, 2));
    assert_eq!(stage_of(&workload, &[pending(), ready()], true).0, complete(1, 2));
    workload.progress.is_overdue = true;
    assert_eq!(stage_of(&workload, &[pending()], false).0, end_of(&first), "the pod that replaces it may find a node");
}

#[test]
fn a_pod_of_an_earlier_plan_that_was_evicted_says_nothing_of_this_one() {
    let mut workload = deployment(1, 1, 1);
    workload.ended = vec![evicted("old", "a", SECOND)];
    assert_eq!(stage_of(&workload, &[pod("new", "b", PodState::Pending)], false).0, rolling(0, 1));
}

#[test]
fn between_two_attempts_the_template_of_the_pods_that_ended_is_the_newest() {
    let mut workload = deployment(1, 1, 0);
    let new = evicted("new", "b-new", SECOND);
    workload.ended = vec![new.clone()];
    let old = pod("old", "b-old", PodState::Ready);
    assert_eq!(stage_of(&workload, &[old], true), (end_of(&new), Serving::Older));
    // And one that an earlier template left behind says nothing, though it carries the same stamps.
    let mut workload = deployment(1, 1, 1);
    workload.ended = vec![evicted("old", "b-old", "2026-01-01T00:00:01Z")];
    assert_eq!(stage_of(&workload, &[pod("new", "b-new", PodState::Pending)], false).0, rolling(0, 1));
}

#[test]
fn a_stateful_set_whose_pods_are_rejected_says_so_also_for_those_that_block_its_update() {
    let mut set = deployment(1, 1, 0);
    set.progress.revision = Some("b-2".to_owned());
    for revision in ["b-2", "b-1"] {
        let end = evicted("s-0", revision, SECOND);
        set.ended = vec![end.clone()];
        assert_eq!(observe(Some(&set), &[], Planned::Revision, false).stage, end_of(&end));
    }
    let pods = [pod("s-0", "b-2", PodState::Pending)];
    assert_eq!(observe(Some(&set), &pods, Planned::Revision, false).stage, rolling(0, 1), "it is of a newer revision");
}

#[test]
fn of_a_plan_that_is_not_applied_no_pod_is_current() {
    let pods = [pod("old", "b", PodState::Ready)];
    let rollout = observe(Some(&deployment(1, 1, 1)), &pods, Planned::Nothing, true);
    assert_eq!((rollout.stage, rollout.serving, rollout.ready), (Stage::NotApplied, Serving::Older, 1));
}

#[test]
fn a_failure_that_may_pass_is_final_only_after_the_deadline_of_the_workload() {
    let is_final = |reason: &str, is_overdue: bool| {
        let failure = Failure { reason: reason.to_owned(), message: String::new(), is_first: false };
        let mut workload = deployment(1, 1, 1);
        workload.progress.is_overdue = is_overdue;
        match stage_of(&workload, &[pod("new", "b", PodState::Failed(failure))], true).0 {
            Stage::Stalled(stall) => stall.is_final,
            other => unreachable!("{other:?}"),
        }
    };
    for reason in
        ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "CreateContainerError", "FailedCreate"]
    {
        assert_eq!((is_final(reason, false), is_final(reason, true)), (false, true), "{reason}");
    }
    for reason in ["CrashLoopBackOff", "InvalidImageName", "ErrImageNeverPull", Failure::OVERDUE] {
        assert!(is_final(reason, false), "{reason}");
    }
    assert!(!is_final(Failure::UNSCHEDULABLE, true), "a node may be added at any time");
}

/// Whether hashes of the current plan are what runs.
fn is_taken_over(workload: Option<&LiveWorkload>, pods: &[LivePod]) -> bool {
    observe(workload, pods, Planned::Stamped(&stamps("b")), true).is_taken_over
}

#[test]
fn a_plan_has_taken_over_when_no_pod_of_an_earlier_one_can_serve_again() {
    let (ready, pending) = (PodState::Ready, PodState::Pending);
    let new = |state: &PodState| pod("new", "b", state.clone());
    let old = |state: &PodState| pod("old", "a", state.clone());
    let both = deployment(1, 2, 1);
    for state in [ready.clone(), pending.clone(), crash()] {
        assert!(!is_taken_over(Some(&both), &[new(&crash()), old(&state)]), "the old pod is {state:?}");
        assert!(!is_taken_over(Some(&both), &[new(&ready), old(&state)]), "the old pod is {state:?}");
    }
    assert!(!is_taken_over(Some(&deployment(1, 1, 0)), &[]), "the old pod was evicted, and comes back");
    assert!(!is_taken_over(Some(&deployment(1, 0, 0)), &[]), "between the two");
    assert!(!is_taken_over(Some(&deployment(1, 1, 1)), &[new(&pending)]));
    assert!(is_taken_over(Some(&deployment(1, 1, 1)), &[new(&ready)]));
    assert!(is_taken_over(Some(&deployment(0, 0, 0)), &[]), "no pod is made");
    assert!(is_taken_over(Some(&LiveWorkload { replicas: 1, generation: 1, ..LiveWorkload::default() }), &[]));
    assert!(is_taken_over(None, &[]));
    let refused = observe(Some(&deployment(1, 0, 0)), &[], Planned::Nothing, true);
    assert!(!refused.is_taken_over, "the Deployment makes pods of the plan before");
}

#[test]
fn a_rollout_that_is_paused_is_not_one_in_progress() {
    let paused = |total: i32, updated: i32| LiveWorkload {
        name: "d".to_owned(),
        is_paused: true,
        ..deployment(1, total, updated)
    };
    let of = |ready: usize| Stage::Paused { deployment: "d".to_owned(), count: Count { ready, wanted: 1 } };
    let (old, new) = (pod("old", "a", PodState::Ready), pod("new", "b", PodState::Ready));
    let stage = |workload: &LiveWorkload, pods: &[LivePod]| stage_of(workload, pods, false);
    assert_eq!(stage(&paused(0, 0), &[]), (of(0), Serving::Nothing));
    assert_eq!(stage(&paused(1, 0), std::slice::from_ref(&old)), (of(0), Serving::Older));
    assert_eq!(stage(&paused(2, 1), &[old, new.clone()]), (of(1), Serving::Current));
    // A pause stops nothing that is complete, and is not why a pod fails.
    assert_eq!(stage(&paused(1, 1), &[new]), (complete(1, 1), Serving::Current));
    assert_eq!(stage(&paused(1, 1), &[pod("new", "b", crash())]).0, stalled("new"));
}
