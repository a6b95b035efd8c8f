"""Where in a step a fault model can strike."""

from paftbench.ranks.sites import BUILT_SITES, Site
from paftbench.verify.fault_case import FaultCase
from paftbench.verify.promise import expect, promise
from paftbench.verify.small_training import SmallTraining


@promise()
def it_strikes_at_every_site_it_declares(case: FaultCase) -> None:
    sites = sorted(case.cls.sites & BUILT_SITES)
    expect(bool(sites), f"a site among {', '.join(sorted(BUILT_SITES))}", "none")
    for site in sites:
        steps = case.steps + 2
        landed = _landed(case, site, case.degree, steps) or _landed(case, site, case.range[1], steps)
        expect(landed > 0, f"strikes at site {str(site)!r}, which it declares", f"none in {steps} steps of training")


def _landed(case: FaultCase, site: Site, degree: float, steps: int) -> int:
    training = SmallTraining(faults=[case.fault(degree, site=site)]).run(steps)
    return training.virtual.pipeline.injector.counts.landed
