"""The configurations that tests/bench/train measures, ours and the peers' alike. Standard library only."""
import dataclasses


@dataclasses.dataclass
class Configuration:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    batch: int
    experts: int
    top_k: int

    @property
    def head(self):
        return self.hidden // self.heads

    @property
    def width(self):
        """Of one expert: as much active as the dense layer's ffn."""
        return self.ffn // self.top_k

    @property
    def tokens(self):
        return self.sequence * self.batch

    def flops_per_token(self, moe):
        """Three products (forward, two backward) of 2 FLOP with every active weight, the output layer's once; attention's causal half."""
        attention = self.hidden * (self.heads + 2 * self.kv_heads) * self.head + self.hidden * self.hidden
        ffn = 3 * self.hidden * self.ffn + (self.hidden * self.experts if moe else 0)
        return 6 * (self.layers * (attention + ffn) + self.hidden * self.vocabulary) + 6 * self.layers * self.hidden * self.sequence


ALL = {c.name: c for c in (
    Configuration("A", 6, 256, 8, 4, 1024, 8192, 512, 8, 16, 4),
    Configuration("B", 4, 128, 4, 2, 512, 256, 256, 16, 8, 2),
    Configuration("C", 12, 768, 12, 4, 2048, 8192, 1024, 1, 16, 4),
)}
