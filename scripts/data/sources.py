"""The files that tests and benchmarks read: address, licence, checksum.

``sha256`` is that of the uncompressed content our figures were measured with, not one that a source publishes. The
addresses were collected from the sources' repositories and could not be tried from the machine this was written on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RAW: Final = "https://raw.githubusercontent.com"
TAR: Final = "https://codeload.github.com"


@dataclass(frozen=True, slots=True)
class DataFile:
    """``members``: files of an archive, joined in name order. ``derived`` says what was done to the source."""

    file: str
    address: str
    licence: str
    sha256: str
    members: str = ""
    derived: str = ""


FILES: Final = (
    DataFile(
        "traces/mooncake_conversation_trace.jsonl.gz",
        f"{RAW}/kvcache-ai/Mooncake/HEAD/FAST25-release/traces/conversation_trace.jsonl",
        "Apache-2.0",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
    ),
    DataFile(
        "traces/mooncake_synthetic_trace.jsonl.gz",
        f"{RAW}/kvcache-ai/Mooncake/HEAD/FAST25-release/traces/synthetic_trace.jsonl",
        "Apache-2.0",
        "bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131",
    ),
    DataFile(
        "traces/weka_claude_code.jsonl.gz",
        f"{TAR}/callanjfox/kv-cache-tester/tar.gz/HEAD",
        "Apache-2.0",
        "cd724ff3956aba05cc3f7f6094ff3dd43ed8d1736b2f444271ec8383135f1ce5",
        members="*/traces/trace_*.json",
        derived="the sessions traces/trace_*.json in name order, one per line; upstream has changed some since",
    ),
    DataFile(
        "traces/azure_2023_code.csv.gz",
        f"{RAW}/Azure/AzurePublicDataset/HEAD/data/AzureLLMInferenceTrace_code.csv",
        "CC-BY-4.0",
        "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
    ),
    DataFile(
        "traces/azure_2023_conv.csv.gz",
        f"{RAW}/Azure/AzurePublicDataset/HEAD/data/AzureLLMInferenceTrace_conv.csv",
        "CC-BY-4.0",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
    ),
    DataFile(
        "text/agent_miniswe.jsonl.gz",
        f"{TAR}/LMCache/lmcache-agent-trace/tar.gz/271d1c02f97d68de6b500bcd9c9b25730b1d4b7f",
        "Apache-2.0",
        "c0d564226852c3cfebd83ef5621eceba16b8a0fda059e106695f7f43ccf0f305",
        members="*/miniswe/*.jsonl",
        derived="the session files of the folder, concatenated in name order",
    ),
    DataFile(
        "text/agent_magagent.jsonl.gz",
        f"{TAR}/LMCache/lmcache-agent-trace/tar.gz/271d1c02f97d68de6b500bcd9c9b25730b1d4b7f",
        "Apache-2.0",
        "14397e23c789bdf5b2fa77f604dc0d6fbdc050f3766264fbc833cdf5ae4be567",
        members="*/magagent/*.jsonl",
        derived="the session files of the folder, concatenated in name order",
    ),
    DataFile(
        "text/agent_taubench.jsonl.gz",
        f"{TAR}/LMCache/lmcache-agent-trace/tar.gz/271d1c02f97d68de6b500bcd9c9b25730b1d4b7f",
        "Apache-2.0",
        "2fe52b5bb7acc09465f8889439d54479871f6473e994371bdfb8ae051a875fad",
        members="*/taubench/*.jsonl",
        derived="the session files of the folder, concatenated in name order",
    ),
    DataFile(
        "text/musique_s.json.gz",
        f"{RAW}/YaoJiayi/CacheBlend/HEAD/inputs/musique_s.json",
        "CC-BY-4.0 (MuSiQue)",
        "d679da1dad32b7f3645de9db0d7a1aaa7e679eb76ed48c02c4688137e5ce6674",
    ),
    DataFile(
        "text/longbench/multi_news.jsonl.gz",
        "https://huggingface.co/datasets/THUDM/LongBench/resolve/main/data.zip",
        "MIT",
        "f8817c00af317c2d7f81128f334bcfe5780c6c2a515d5c96811aa0ddf8b5ee6b",
        members="data/multi_news.jsonl",
        derived="one file of the archive",
    ),
    DataFile(
        "text/longbench/multifieldqa_zh.jsonl.gz",
        "https://huggingface.co/datasets/THUDM/LongBench/resolve/main/data.zip",
        "MIT",
        "e5b4fd1a437c53c1c9e4e31eda7a259110b06d14be79c3ec455008c11fb9fab5",
        members="data/multifieldqa_zh.jsonl",
        derived="one file of the archive",
    ),
    DataFile(
        "text/longbench/passage_retrieval_zh.jsonl.gz",
        "https://huggingface.co/datasets/THUDM/LongBench/resolve/main/data.zip",
        "MIT",
        "d71c1f71f9fee4c2108f822e9c58ac3cef94db47902c40ddfe168ecb5aab3cc0",
        members="data/passage_retrieval_zh.jsonl",
        derived="one file of the archive",
    ),
    DataFile(
        "text/leval/coursera.jsonl.gz",
        f"{RAW}/OpenLMLab/LEval/HEAD/LEval-data/Closed-ended-tasks/coursera.jsonl",
        "GPL-3.0; texts keep their own",
        "03ef77fcbd191545ee9f750487d1e6b209352e6440cadc6671f0c9f4fcb753a5",
    ),
    DataFile(
        "text/leval/quality.jsonl.gz",
        f"{RAW}/OpenLMLab/LEval/HEAD/LEval-data/Closed-ended-tasks/quality.jsonl",
        "GPL-3.0; texts keep their own",
        "e12593a3da249dc1f769d10e07da896a524917f278900a6f6ef42e7fd4daa67b",
    ),
    DataFile(
        "text/leval/tpo.jsonl.gz",
        f"{RAW}/OpenLMLab/LEval/HEAD/LEval-data/Closed-ended-tasks/tpo.jsonl",
        "GPL-3.0; texts keep their own",
        "7596d085ddc8e11418d53e956b492f9cba7087c2fc1b516508a26257eed1a57e",
    ),
    DataFile(
        "text/leval/financial_qa.jsonl.gz",
        f"{RAW}/OpenLMLab/LEval/HEAD/LEval-data/Open-ended-tasks/financial_qa.jsonl",
        "GPL-3.0; texts keep their own",
        "e6507e3a195af133f254edf663b0fcaa8df1fc5912cd50a84e575df152912158",
    ),
    DataFile(
        "text/leval/legal_contract_qa.jsonl.gz",
        f"{RAW}/OpenLMLab/LEval/HEAD/LEval-data/Open-ended-tasks/legal_contract_qa.jsonl",
        "GPL-3.0; texts keep their own",
        "ed78010152c83effc5191592f92e2c0821f05329789cb546898d5d6290208dd8",
    ),
    DataFile(
        "text/leval/multidoc_qa.jsonl.gz",
        f"{RAW}/OpenLMLab/LEval/HEAD/LEval-data/Open-ended-tasks/multidoc_qa.jsonl",
        "GPL-3.0; texts keep their own",
        "3f53fd749ff8c7300150f5c6895c73ee201fbd9f3e6785da859eadd36147e220",
    ),
    DataFile(
        "text/leval/natural_question.jsonl.gz",
        f"{RAW}/OpenLMLab/LEval/HEAD/LEval-data/Open-ended-tasks/natural_question.jsonl",
        "GPL-3.0; texts keep their own",
        "0daf58b082041c3e384d8ef990981c9e9cb5de7c49e9219ab9f8c1edb2dea568",
    ),
    DataFile(
        "text/leval/scientific_qa.jsonl.gz",
        f"{RAW}/OpenLMLab/LEval/HEAD/LEval-data/Open-ended-tasks/scientific_qa.jsonl",
        "GPL-3.0; texts keep their own",
        "db11d9cc4c928a3dc4bef6075a8223b785a117b4066439d4c55e6bc4e817f4c0",
    ),
    DataFile(
        "text/qmsum_test.jsonl.gz",
        f"{RAW}/Yale-LILY/QMSum/HEAD/data/ALL/jsonl/test.jsonl",
        "MIT",
        "6bcd428211260ad2efae3af76cbaf6a7f5ae4bb5e1e59c45a4b8e89539cb9208",
    ),
    DataFile(
        "text/qmsum_val.jsonl.gz",
        f"{RAW}/Yale-LILY/QMSum/HEAD/data/ALL/jsonl/val.jsonl",
        "MIT",
        "fc7444e241bdbe6997c01720d07f1a58b7357284acb73f909766e5a4700db49f",
    ),
    DataFile(
        "text/tau_bench_airline.json.gz",
        f"{RAW}/sierra-research/tau-bench/HEAD/historical_trajectories/gpt-4o-airline.json",
        "MIT",
        "e9e6c0297660c537f83d4fd9c476ce7a9a86ecd2784874b7bfc13be598e37bfa",
    ),
    DataFile(
        "text/kv-retrieval-75_keys.jsonl.gz",
        f"{RAW}/nelson-liu/lost-in-the-middle/HEAD/kv_retrieval_data/kv-retrieval-75_keys.jsonl.gz",
        "MIT",
        "a0b62bcf5c33d41acd002250633c41f4890071bd05716849513b14a69473cd60",
    ),
    DataFile(
        "cache/cloudphysics_io.csv.gz",
        f"{RAW}/1a1a11a/libCacheSim/HEAD/data/cloudPhysicsIO.csv",
        "GPL-3.0 (repository)",
        "987ff2213050e47d24e8ba6e010d4b3127e51aafef6a76a8a6d43d13b9156fa1",
    ),
)
