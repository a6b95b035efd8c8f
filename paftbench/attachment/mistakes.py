"""What a user's loop did wrong, a line each; braces are filled in by `Rounds.on`."""

_PASSES = "accumulation (backward passes per step) is {accumulation}, but the optimizer "

NEVER_CALLED = (
    "the hook was never called: no gradient went through the attached DDP model; call the DDP model, "
    "not its .module, and run backward() outside no_sync() before the optimizer's step"
)
NEVER_STEPPED = (
    "the attached optimizer was never stepped: {passes} backward passes, but no call of its step(), "
    "nor of scaler.step(); attach the optimizer that the loop uses"
)
TOO_EARLY = _PASSES + "stepped after {into}; passes inside no_sync() do not count"
PILED = (
    _PASSES + "got the gradients of {gradients}: no zero_grad() came between them; passes inside no_sync() do not count"
)
STRAY = (
    "the optimizer took gradients that did not come through the hook since its last step: no backward() came, or all "
    "were inside no_sync() or went past the DDP model; run the last one before a step outside no_sync()"
)
PAST_THE_HOOK = (
    "the optimizer took a gradient of parameter {parameter} that is not the mean over ranks: something entered it that "
    "did not come through the attached DDP model's hook, such as a backward pass inside no_sync() or through .module "
    "after the synchronised one, a second backward pass of two forwards, or a parameter that was unfrozen or added "
    "after DDP wrapped the model"
)
OVERTAKEN = (
    "a forward pass with gradients came between backward() and the optimizer's step, so that the gradients "
    "counted as discarded; evaluate under torch.no_grad(), or after the step"
)
IN_BACKWARD = (
    "the optimizer was stepped inside backward(), before all gradients were averaged; step it after backward()"
)
STILL_SCALED = (
    "the optimizer took gradients that are still multiplied by the loss scale: scaler.unscale_() came before this "
    "backward(), and no scaler.update() between them; call scaler.update() once per step"
)
UNGIVEN_SCALER = (
    "the optimizer is stepped by a GradScaler that was not given to attach(): a rank could skip its update "
    "alone; use attach(ddp, optimizer, scaler, ...)"
)
BESIDE_SCALER = (
    "attached with a GradScaler, but optimizer.step() was called without it: use scaler.step(optimizer), "
    "or attach without scaler"
)
SAVED_WITHIN = "state_dict() within a step: after {into} of its {accumulation} backward passes"
BROKEN = "an earlier error left the attachment within a step ({failure}); detach() it, or load a state_dict()"
DETACHED = "{event} after detach(): attach the model anew"
ORDER = "{event} while {state}: hooks were called out of order, an error of paftbench's own; please report it"
