# SPDX-License-Identifier: Apache-2.0
r"""A character LSTM on any text.

    tools/slimps launch --workers 2 --servers 2 -- python3 examples/char_lstm_torch.py --text FILE
    tools/slimps launch --workers 2 --servers 2 -- python3 examples/char_lstm_torch.py --text FILE \
        --compression qsgd:bits=4,norm=max,error_feedback=on --backup_model on    # SlimGC

Without --text the licence that Debian has in /usr/share/common-licenses is learnt. The last tenth
of the text validates.
"""

import numpy as np
import torch
import training
from torch import nn

WINDOW = 64


class CharLstm(nn.Module):
    """Embedding 64, LSTM 256, linear. The state is zero at the start of every window."""

    def __init__(self, characters):
        super().__init__()
        self.embedding = nn.Embedding(characters, 64)
        self.lstm = nn.LSTM(64, 256, batch_first=True)
        self.decode = nn.Linear(256, characters)

    def forward(self, text):
        return self.decode(self.lstm(self.embedding(text))[0]).flatten(0, 1)


def windows(path):
    """Returns the windows to train on, the windows to validate on, and the number of characters.

    A window is a row of WINDOW character indices and the index of the character after them. The
    number counts different characters.
    """
    with open(path, "rb") as source:
        text = np.frombuffer(source.read(), np.uint8)
    vocabulary, indices = np.unique(text, return_inverse=True)
    count = (len(indices) - 1) // WINDOW
    rows = torch.from_numpy(
        np.stack([indices[row * WINDOW : (row + 1) * WINDOW + 1] for row in range(count)])
    )
    return rows[: count * 9 // 10], rows[count * 9 // 10 :], len(vocabulary)


def loss_of(model, rows):
    return nn.functional.cross_entropy(model(rows[:, :-1]), rows[:, 1:].flatten())


def main():
    parser = training.parser(__doc__.split("\n", maxsplit=1)[0], epochs=3, batch=16, lr=0.002)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    flags = parser.parse_args()
    device = training.device(flags)
    torch.set_num_threads(1)
    torch.manual_seed(flags.seed)
    rows, validation, characters = windows(flags.text)
    rows, validation = rows.to(device), validation.to(device)
    model = CharLstm(characters).to(device)

    def validation_loss(trained):
        parts = validation.split(64)
        return sum(float(loss_of(trained, part)) * len(part) for part in parts) / len(validation)

    with training.Run(flags, model, torch.optim.Adam(model.parameters(), lr=flags.lr)) as run:
        for samples in run.steps(len(rows)):
            run.step(loss_of(run.model, rows[samples]))
        run.report(validation_loss, "validation loss %.4f")


if __name__ == "__main__":
    main()
