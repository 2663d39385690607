"""Training steps by PyTorch on a CPU, at its best: the rows train/* of `heed bench`, whose models and
sizes these are (bench/train_bench.cpp). Each row is tried as it is and compiled, in f32 and under bf16
autocast; printed is the best time of each kind, in milliseconds.

    pip install torch numpy
    python bench/pytorch_train.py --threads 1 --seconds 5
    build/release/heed bench --only train/ --threads 1

Freed memory stays in the process, as a training loop's would be reused: glibc is told so, before
PyTorch begins.
"""
import argparse, math, os, sys, time

if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
    os.environ.update(MALLOC_TRIM_THRESHOLD_="-1", MALLOC_TOP_PAD_="268435456", MALLOC_MMAP_MAX_="0")
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LENGTH, STEPS, WORDS, SIZE, INNER, HEADS, LAYERS, DROPOUT = 32, 32, 30, 8000, 256, 1024, 4, 3, 0.1


class Attention(nn.Module):
    """Projections that read the same are one product."""

    def __init__(self, cross):
        super().__init__()
        self.norm, self.cross, self.out = nn.LayerNorm(SIZE), cross, nn.Linear(SIZE, SIZE)
        self.first = nn.Linear(SIZE, SIZE if cross else 3 * SIZE)
        self.memory = nn.Linear(SIZE, 2 * SIZE) if cross else None

    def forward(self, x, memory=None, causal=False):
        def heads(y, parts):
            return y.view(BATCH, LENGTH, parts, HEADS, SIZE // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        own = heads(self.first(self.norm(x)), 1 if self.cross else 3)
        q, k, v = (own[0], *heads(self.memory(memory), 2)) if self.cross else own
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return x + F.dropout(self.out(y.transpose(1, 2).reshape(BATCH, LENGTH, SIZE)), DROPOUT)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(SIZE), nn.Linear(SIZE, INNER), nn.Linear(INNER, SIZE)

    def forward(self, x):
        return x + F.dropout(self.second(F.relu(self.first(self.norm(x)))), DROPOUT)


def ids(*shape, words):
    return torch.randint(words, shape)


class Transformer(nn.Module):
    """Vaswani et al., 2017; norms before each part and once more at the end."""

    def __init__(self, words=WORDS):
        super().__init__()
        self.source, self.target = nn.Embedding(words, SIZE), nn.Embedding(words, SIZE)
        self.encoder = nn.ModuleList(nn.ModuleList([Attention(False), FeedForward()]) for _ in range(LAYERS))
        self.decoder = nn.ModuleList(nn.ModuleList([Attention(False), Attention(True), FeedForward()]) for _ in range(LAYERS))
        self.norms = nn.ModuleList([nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)])
        self.output = nn.Linear(SIZE, words, bias=False)
        angle = torch.arange(LENGTH).unsqueeze(1) * torch.exp(torch.arange(0, SIZE, 2) * (-math.log(1e4) / SIZE))
        self.register_buffer("positions", torch.stack([angle.sin(), angle.cos()], -1).view(LENGTH, SIZE))
        self.text = [ids(BATCH, LENGTH, words=words) for _ in range(3)]

    def forward(self, source, given, wanted):
        def embed(table, text):
            return F.dropout(table(text) * math.sqrt(SIZE) + self.positions, DROPOUT)
        x = embed(self.source, source)
        for attention, feed in self.encoder:
            x = feed(attention(x))
        memory, x = self.norms[0](x), embed(self.target, given)
        for attention, cross, feed in self.decoder:
            x = feed(cross(attention(x, causal=True), memory))
        logits = self.output(self.norms[1](x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), wanted.view(-1), label_smoothing=0.1)


class GruAdditive(nn.Module):
    """Bahdanau, Cho and Bengio, 2015. The words' share of the gates is known for all steps before the
    first; what comes from the last state is one product."""

    def __init__(self, words):
        super().__init__()
        self.source, self.target = nn.Embedding(words, SIZE), nn.Embedding(words, SIZE)
        self.encoder = nn.GRU(SIZE, SIZE, bidirectional=True, batch_first=True)
        self.keys, self.score = nn.Linear(2 * SIZE, SIZE, bias=False), nn.Parameter(torch.randn(SIZE) / math.sqrt(SIZE))
        self.of_state, self.of_word = nn.Linear(SIZE, 4 * SIZE), nn.Linear(SIZE, 3 * SIZE)
        self.of_context = nn.Linear(2 * SIZE, 3 * SIZE, bias=False)
        self.readout, self.output = nn.Linear(4 * SIZE, SIZE), nn.Linear(SIZE, words, bias=False)
        self.text = [ids(BATCH, STEPS, words=words) for _ in range(3)]

    def forward(self, source, given, wanted):
        memory, _ = self.encoder(self.source(source))
        keys, words = self.keys(memory), self.target(given)
        of_words = self.of_word(words).unbind(1)
        state = torch.zeros(BATCH, SIZE, dtype=keys.dtype)
        states, contexts = [], []
        for t in range(STEPS):
            query, gates, proposed = self.of_state(state).split([SIZE, 2 * SIZE, SIZE], 1)
            weights = torch.matmul(torch.tanh(keys + query.unsqueeze(1)), self.score.to(keys.dtype)).softmax(-1)
            context = torch.bmm(weights.unsqueeze(1).to(memory.dtype), memory).squeeze(1)
            of_input = of_words[t] + self.of_context(context)
            reset, update = torch.sigmoid(of_input[:, : 2 * SIZE] + gates).chunk(2, 1)
            fresh = torch.tanh(of_input[:, 2 * SIZE :] + reset * proposed)
            state = torch.lerp(fresh, state, update)
            states.append(state), contexts.append(context)
        everything = torch.cat([torch.stack(states, 1), torch.stack(contexts, 1), words.to(state.dtype)], 2)
        logits = self.output(torch.tanh(self.readout(everything)))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), wanted.view(-1), label_smoothing=0.1)


ROWS = {"train/transformer": Transformer, "train/gru_additive": lambda: GruAdditive(512), "train/gru_additive/8000": lambda: GruAdditive(8000)}


def best_of(make, bf16, compiled, seconds):
    torch.manual_seed(1)
    model = make()
    adam = torch.optim.Adam(model.parameters(), 1e-4, betas=(0.9, 0.98), fused=True)
    loss_of = torch.compile(model) if compiled else model

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = loss_of(*model.text)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        adam.step()
        adam.zero_grad(set_to_none=True)
        return loss

    first = [float(step().detach()) for _ in range(3)]
    assert all(map(math.isfinite, first)), first
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - begin)
    return 1000 * best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5, help="of each kind of each row")
    parser.add_argument("--only", default="", help="rows whose names contain this")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    print(f"PyTorch {torch.__version__}, {o.threads} threads, {torch.backends.cpu.get_cpu_capability()}; ms a step", flush=True)
    for name, make in ROWS.items():
        if o.only not in name:
            continue
        kinds = {(bf16, compiled): best_of(make, bf16, compiled, o.seconds) for bf16 in (False, True) for compiled in (False, True)}
        told = ", ".join(f"{'bf16' if b else 'f32'}{' compiled' if c else ''} {t:.1f}" for (b, c), t in kinds.items())
        print(f"{name}: f32 {min(kinds[False, c] for c in (False, True)):.1f}, bf16 {min(kinds[True, c] for c in (False, True)):.1f}  ({told})", flush=True)


if __name__ == "__main__":
    main()
