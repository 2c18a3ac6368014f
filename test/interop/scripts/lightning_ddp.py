"""One step of Lightning's Trainer with DDP."""
import os

import lightning
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


rank = int(os.environ["RANK"])
torch.manual_seed(rank)
x = torch.arange(64.0).reshape(16, 4) / 64
model = Line()
trainer = lightning.Trainer(
    accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
trainer.fit(model, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=2))
n = trainer.world_size
assert n == dist.get_world_size() == int(os.environ["WORLD_SIZE"]) == 4 and trainer.global_rank == rank, (n, trainer.global_rank)
assert trainer.global_step == 1

mine = torch.cat([p.detach().flatten() for p in model.parameters()])
assert not torch.equal(mine, before)
everyone = [torch.empty_like(mine) for _ in range(n)]
dist.all_gather(everyone, mine)
assert all(torch.equal(one, mine) for one in everyone)
print(f"rank {rank} of {n}: equal parameters {mine.sum().item():.6f}", flush=True)
