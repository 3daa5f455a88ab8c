"""Language models of transformers that see (LLaVA, Gemma 3, Qwen-VL) and how they generate: each sequence
begins with one image, whose tokens the vision tower computes in prefill, and the prompt follows."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflines.arguments import arg
from rooflines.errors import WorkloadError, first_line
from rooflines.profiler.workloads.causal_models import CausalModel

if TYPE_CHECKING:
    import torch

# The side of an image, in pixels, of a network that takes any.
_SIDE = 448


@dataclass(eq=False)
class ImageTextModel(CausalModel):
    """A model that takes images and tokens as a ``Generator`` for ``prompts`` [batch, tokens].

    The images are black: what a network computes does not depend on their content. Raises WorkloadError for
    one that takes images in another form.
    """

    prompts: torch.Tensor

    def __post_init__(self) -> None:
        import torch

        from rooflines.profiler.calls.fakes import quiet_refusals

        super().__post_init__()
        self._unseen: torch.Tensor | None = None
        kind = self.network.config.model_type
        if self.kind == "none":
            raise WorkloadError(f"{arg('kv_cache', 'none')} does not apply to {kind}, which takes images.")
        vision: Any = self.network.config.vision_config
        batch, like = len(self.prompts), {"dtype": self.network.dtype, "device": self.prompts.device}
        side = getattr(vision, "image_size", None) or _SIDE
        channels = getattr(vision, "num_channels", getattr(vision, "in_channels", 3))
        #: the side of the images in pixels
        self.image_size: int = side if isinstance(side, int) else side[0]
        taken = inspect.signature(self.network.get_image_features).parameters
        if "image_grid_thw" in taken:  # patches of all images, and how many of them each has
            across = side // vision.patch_size
            size = channels * vision.temporal_patch_size * vision.patch_size**2
            grid = torch.tensor([[1, across, across]] * batch, device=self.prompts.device)
            self._image = {
                "pixel_values": torch.zeros(batch * across**2, size, **like),
                "image_grid_thw": grid,
            }
        else:
            side, high = (side, side) if isinstance(side, int) else side
            self._image = {"pixel_values": torch.zeros(batch, channels, side, high, **like)}
        try:
            with torch.no_grad(), quiet_refusals():
                self._image_tokens = self._seen().shape[1]
        except Exception as error:  # what a network raises on images that it does not take
            raise WorkloadError(
                f"{kind} takes images in a form that is not made: {first_line(error)}.",
                hint="Give the configuration of its language model (text_config).",
            ) from error

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"each sequence begins with an image: {self._image_tokens:,} tokens before the prompt",)

    def _seen(self) -> torch.Tensor:
        """The tokens of the images, [batch, tokens, hidden]."""
        import torch

        found = self.network.get_image_features(**self._image)
        found = getattr(found, "pooler_output", found)
        found = torch.cat(list(found)) if isinstance(found, (list, tuple)) else found
        return found.reshape(len(self.prompts), -1, found.shape[-1])

    def places(self, tokens: int) -> int:
        return tokens + self._image_tokens

    def begin(self, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        # In a hook the vision tower runs inside of the network, which module names begin at.
        self._unseen = self._sequence = tokens
        hook = self.network.register_forward_pre_hook(self._see, with_kwargs=True)
        try:
            logits: torch.Tensor = self.network(**self.cached(cache)).logits
        finally:
            hook.remove()
        return logits

    def _see(self, network: Any, _: Any, keywords: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]] | None:
        """Put the tokens of the images and of the prompts into the keywords of the first call."""
        import torch

        if self._unseen is None:
            return None
        tokens, self._unseen = self._unseen, None
        written = network.get_input_embeddings()(tokens)
        whole = torch.cat([self._seen().to(written.dtype), written], dim=1)
        return (), {**keywords, "inputs_embeds": whole}
