"""Claims that are read from Opacus' own engine."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedaudit.errors import FedauditError
from fedaudit.integrations.claims import of_opacus, write_claim
from fedaudit.session.verify.evidence import Claim, Declared, read_claim
from fedaudit.trace.store import HOST_CLAIM

DELTA, ROUNDS = 1e-5, 3


@pytest.mark.filterwarnings("ignore")
def test_what_the_engine_counted_is_what_an_accountant_makes_of_the_claim(tmp_path: Path) -> None:
    from opacus import PrivacyEngine

    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    module = nn.Linear(4, 2)
    engine = PrivacyEngine(accountant="rdp")
    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=16),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
    )
    for round in range(1, ROUNDS + 1):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        write_claim(tmp_path, of_opacus(engine, optimizer, DELTA, round), round)
    claim = read_claim(tmp_path / HOST_CLAIM, ROUNDS)
    assert claim.said.clip == 0.5
    assert (claim.said.noise, claim.said.rate, claim.said.releases) == (1.0, 0.25, 4)
    exact = Claim(Declared.model_validate(claim.said.model_dump()), ROUNDS).spent(ROUNDS)
    assert exact <= engine.get_epsilon(DELTA) == claim.said.epsilon <= 1.5 * exact  # RDP is an upper bound
    with pytest.raises(FedauditError, match="in 5 rounds"):
        of_opacus(engine, optimizer, DELTA, 5)
