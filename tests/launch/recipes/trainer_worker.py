# SPDX-License-Identifier: Apache-2.0
"""A script with transformers' Trainer: trainer_worker.py WAY FOLDER NORM [CHECKPOINT].

WAY is ddp, hook or servers, NORM what gradients are clipped by. It trains a small model, evaluates
and saves on the way, and prints rank 0's losses. From CHECKPOINT it goes on.
"""

import sys

import slimps.transformers
import torch
import transformers

STEPS = 6


def main(way, folder, norm, checkpoint=None):
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, **DROPOUT
    )
    made = torch.Generator().manual_seed(2)
    samples = [{"input_ids": one, "labels": one} for one in tokens(made, 8 * STEPS)]
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=0.01,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=STEPS // 2,
        save_steps=STEPS // 2,
        max_grad_norm=float(norm),
        report_to=[],
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=samples,
        eval_dataset=samples[:4],
    )
    if way == "hook":
        trainer.add_callback(slimps.transformers.CommHookCallback(trainer))
    if way == "servers":
        slimps.transformers.distribute(trainer)
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.is_world_process_zero():
        for noted in trainer.state.log_history:
            for name in ("loss", "eval_loss"):
                if name in noted:
                    print("step %d: %s %.6f" % (noted["step"], name, noted[name]), flush=True)


DROPOUT = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "bos_token_id": 0, "eos_token_id": 0}


def tokens(made, count):
    """Returns samples that can be learned: each token is the one before it and a step."""
    begins = torch.randint(32, (count, 1), generator=made)
    steps = torch.randint(1, 3, (count, 1), generator=made)
    return (begins + steps * torch.arange(8)) % 32


if __name__ == "__main__":
    main(*sys.argv[1:])
