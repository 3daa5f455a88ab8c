"""Small networks that are no image classifiers, as factories for the command line: ``models.py:bert``."""

import torch
import torchvision
import transformers
from torch import nn

TOKENS, WORDS, LAYERS = 32, 2000, 2


def deeplabv3(mode):
    network = torchvision.models.get_model("deeplabv3_resnet50", weights=None, weights_backbone=None, aux_loss=True)
    return network, torch.rand(2, 3, 64, 64)


def faster_rcnn(mode):
    small = {
        "min_size": 96, "max_size": 96, "rpn_post_nms_top_n_train": 50, "rpn_post_nms_top_n_test": 50, "box_batch_size_per_image": 16,
    }  # fmt: skip
    network = torchvision.models.get_model("fasterrcnn_resnet50_fpn", weights=None, weights_backbone=None, **small)
    images = [torch.rand(3, 96, 96), torch.rand(3, 64, 96)]
    target = {"boxes": torch.tensor([[8.0, 8.0, 60.0, 50.0], [30.0, 20.0, 90.0, 60.0]]), "labels": torch.tensor([1, 2])}
    return network, (images, [target, target]) if mode == "training" else (images,)


def bert(mode):
    tokens = torch.randint(0, WORDS, (2, TOKENS))
    network = transformers.BertForMaskedLM(transformers.BertConfig(num_hidden_layers=LAYERS, vocab_size=WORDS))
    return network, {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        **({"labels": tokens} if mode == "training" else {}),
    }


def gpt2(mode):
    tokens = torch.randint(0, WORDS, (2, TOKENS))
    config = transformers.GPT2Config(n_layer=LAYERS, vocab_size=WORDS, bos_token_id=1, eos_token_id=1, loss_type="ForCausalLM")
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens, **({"labels": tokens} if mode == "training" else {})}


class Decoding(nn.Module):
    """One token with the keys and values of those before it, which each step finds as the last one did."""

    def __init__(self, network, tokens):
        super().__init__()
        self.network = network
        with torch.no_grad():
            self.cache = network(input_ids=tokens, use_cache=True).past_key_values

    def forward(self, token):
        logits = self.network(input_ids=token, past_key_values=self.cache, use_cache=True).logits
        self.cache.crop(-1)
        return logits


def gpt2_decoding(mode):
    network, inputs = gpt2(mode)
    return Decoding(network.eval(), inputs["input_ids"]), torch.zeros(2, 1, dtype=torch.long)


class LanguageModel(nn.Module):
    """Embedding, two layers of LSTM, and the words' scores."""

    def __init__(self, words=WORDS, width=128):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.scores = nn.Linear(width, words)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return self.scores(states)


def lstm(mode):
    return LanguageModel(), torch.randint(0, WORDS, (4, TOKENS))
