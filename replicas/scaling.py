"""What Ray Serve is told about the number of Verifiers; ``replicas.autoscaling`` decides it."""

from __future__ import annotations

from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from replicas.autoscaling import WorkPolicy
from replicas.config import VerifierAutoscaling


def autoscaling_config(config: VerifierAutoscaling) -> AutoscalingConfig:
    """Return Serve's own configuration of it."""
    policy = AutoscalingPolicy(  # type: ignore[no-untyped-call]  # Ray leaves it untyped
        policy_function=f"{WorkPolicy.__module__}:{WorkPolicy.__name__}",
        policy_kwargs={
            "ttft_target_s": config.ttft_target_s,
            "reply_target_s": config.reply_target_s,
            "tolerance": config.tolerance,
        },
    )
    return AutoscalingConfig(
        min_replicas=config.min_replicas,
        max_replicas=config.max_replicas,
        look_back_period_s=config.look_back_s,
        upscale_delay_s=config.upscale_delay_s,
        downscale_delay_s=config.downscale_delay_s,
        policy=policy,
    )
