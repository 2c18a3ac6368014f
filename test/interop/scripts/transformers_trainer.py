"""One step of Transformers' Trainer with a small model of random parameters and data made here."""
import os

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(rank)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2))
tokens = [torch.arange(i, i + 8) % 32 for i in range(16)]
data = [{"input_ids": t, "labels": t} for t in tokens]
arguments = TrainingArguments(
    output_dir=os.path.join(os.environ["SCRATCH"], f"rank{rank}"), use_cpu=True, max_steps=1,
    per_device_train_batch_size=2, report_to=[], save_strategy="no", disable_tqdm=True)
assert arguments.world_size == n == 4 and arguments.process_index == rank, (arguments.world_size, arguments.process_index)
before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
done = Trainer(model=model, args=arguments, train_dataset=data).train()
assert done.global_step == 1

mine = torch.cat([p.detach().flatten() for p in model.parameters()])
assert not torch.equal(mine, before)
everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
dist.all_gather(everyone, mine)
assert len(everyone) == n and all(torch.equal(one, mine) for one in everyone)
print(f"rank {rank} of {n}: equal parameters {mine.sum().item():.6f}", flush=True)
dist.destroy_process_group()
