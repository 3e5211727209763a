"""Trains a small model with the callback of the Python package, under `capture`, and says what it did: the marks can be compared with that.

Usage: PYTHONPATH=analyze/python capture --out RUN.parquet -- python3 callbacks.py trainer|lightning|accelerate
Needs a GPU, and transformers, lightning or accelerate. Prints one line of JSON: epochs, steps, validations and checkpoints.
"""

import json
import sys
import tempfile

import torch

EPOCHS, BATCH, SAMPLES = 2, 16, 320


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        values = torch.full((64,), index / SAMPLES)
        return {"x": values, "labels": values.sum(0, keepdim=True)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))

    def forward(self, x, labels=None):
        loss = torch.nn.functional.mse_loss(self.layers(x), labels)
        return {"loss": loss, "logits": loss.detach().reshape(1)}


def trainer(folder):
    from inquest_gpu.transformers import InquestCallback
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, eval_strategy="epoch", save_strategy="epoch", report_to=[], disable_tqdm=True
    )
    Trainer(Model(), arguments, train_dataset=Samples(), eval_dataset=Samples(), callbacks=[InquestCallback()]).train()
    return {"epoch": EPOCHS, "step": EPOCHS * SAMPLES // BATCH, "validation": EPOCHS, "checkpoint": EPOCHS}


def lightning(folder):
    try:
        import lightning.pytorch as pl
    except ImportError:
        import pytorch_lightning as pl

    from inquest_gpu.lightning import InquestCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, _):
            return self.model(**batch)["loss"]

        def validation_step(self, batch, _):
            self.model(**batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    loader = lambda: torch.utils.data.DataLoader(Samples(), batch_size=BATCH)  # noqa: E731
    fitter = pl.Trainer(
        max_epochs=EPOCHS, accelerator="gpu", devices=1, default_root_dir=folder, num_sanity_val_steps=0, logger=False,
        enable_progress_bar=False, callbacks=[InquestCallback()],
    )
    fitter.fit(Module(), loader(), loader())
    return {"epoch": EPOCHS, "step": EPOCHS * SAMPLES // BATCH, "validation": EPOCHS, "checkpoint": EPOCHS}


def accelerate(folder):
    from accelerate import Accelerator
    from inquest_gpu.accelerate import InquestTracker

    accelerator = Accelerator(log_with=InquestTracker(), project_dir=folder)
    accelerator.init_trackers("callbacks")
    model = Model()
    loader = torch.utils.data.DataLoader(Samples(), batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3), loader)
    for number, batch in enumerate(loader):
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"loss": 0.0}, step=number)
    accelerator.end_training()
    return {"log": SAMPLES // BATCH}


with tempfile.TemporaryDirectory() as folder:
    print(json.dumps({"framework": sys.argv[1], "marks": {"trainer": trainer, "lightning": lightning, "accelerate": accelerate}[sys.argv[1]](folder)}))
