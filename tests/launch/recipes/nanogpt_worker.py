# SPDX-License-Identifier: Apache-2.0
"""What nanoGPT's train.py does, with a small model: nanogpt_worker.py WAY FOLDER NORM [CHECKPOINT].

WAY is ddp or servers, NORM what gradients are clipped by. Rank 0 alone evaluates, saves and prints.
From CHECKPOINT it goes on.
"""

import os
import sys

import slimps.torch
import torch
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
PASSES = 2


class Model(torch.nn.Module):
    """Tied weights, and parameters that decay and that do not, as nanoGPT's."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(32, 16)
        self.block = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True)
        self.head = torch.nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight
        for matrix in (one for one in self.parameters() if one.dim() >= 2):
            torch.nn.init.normal_(matrix, std=0.02)  # losses near ln 32, whose sixth decimal tells

    def forward(self, tokens, targets):
        logits = self.head(self.block(self.embed(tokens)))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch(step, number, rank):
    made = torch.Generator().manual_seed(100 * step + 10 * number + rank)
    tokens = (torch.randint(32, (4, 1), generator=made) + torch.arange(9)) % 32
    return tokens[:, :-1], tokens[:, 1:]


def main(way, folder, norm, checkpoint=None):
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(1 + rank)
    model = Model()
    begin = 0
    decaying = [one for one in model.parameters() if one.dim() >= 2]
    others = [one for one in model.parameters() if one.dim() < 2]
    groups = [{"params": decaying, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.99))
    if checkpoint is not None:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["iter_num"]
    raw_model = model
    if way == "ddp":
        model = DistributedDataParallel(model)
    else:
        optimizer = slimps.torch.DistributedOptimizer(
            optimizer,
            model.named_parameters(),
            clip_norm=float(norm) or None,
            backward_passes_per_step=PASSES,
        )
    for step in range(begin, STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (1 + step)
        if rank == 0 and step == STEPS // 2:
            with torch.no_grad():
                print("step %d: val %.6f" % (step, raw_model(*batch(0, 9, 0)).item()), flush=True)
            os.makedirs(folder, exist_ok=True)
            saved = {
                "model": raw_model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "iter_num": step,
            }
            torch.save(saved, os.path.join(folder, "checkpoint"))
        for number in range(PASSES):
            model.require_backward_grad_sync = number == PASSES - 1
            loss = model(*batch(step, number, rank)) / PASSES
            loss.backward()
        if way == "ddp" and float(norm):
            torch.nn.utils.clip_grad_norm_(model.parameters(), float(norm))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            print("step %d: loss %.6f" % (step, loss.item() * PASSES), flush=True)
    if way == "servers":
        optimizer.close()
    torch.distributed.destroy_process_group()
    if way == "ddp":
        # The end of DDP's model may hang: it joins gloo's thread, which waits for Python's lock.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
