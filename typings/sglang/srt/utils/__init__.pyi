from sglang.srt.utils.common import kill_process_tree as kill_process_tree
