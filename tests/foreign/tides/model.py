"""A small network from a day of levels to the next hour's."""

from torch import Tensor, nn


class NextHour(nn.Module):
    """Two hidden layers with dropout between them."""

    def __init__(self, past: int = 24, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(past, width)
        self.second = nn.Linear(width, width)
        self.drop = nn.Dropout(0.05)
        self.head = nn.Linear(width, 1)

    def forward(self, levels: Tensor) -> Tensor:
        hidden = self.drop(self.first(levels).relu())
        prediction: Tensor = self.head(self.second(hidden).relu())
        return prediction
