"""Whether a replica's engine still comes on with its work, or Serve should replace it."""

from draftwerk.actors.monitoring.snapshot import Snapshot


def stuck(snapshot: Snapshot, limit_s: float) -> str:
    """Return what has not come on for longer than the limit; empty where everything does.

    A model that is being started again has limits of its own, after which the engine ends; so has
    a step, and the limit here should be above that (`actors.devices.process.STEP_S`).
    """
    if not snapshot.models.target_up:
        return ""
    if (idle_s := snapshot.actors.progress_age_s) > limit_s:
        return f"there was work, and no round was committed for {idle_s:.0f} s"
    for actor, age_s in snapshot.actors.actor_ages_s.items():
        if age_s > limit_s:
            return f"the {actor} has been at one thing for {age_s:.0f} s"
    return ""
