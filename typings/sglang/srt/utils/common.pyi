def kill_process_tree(
    parent_pid: int,
    include_parent: bool = ...,
    skip_pid: int | None = ...,
    wait_timeout: float | None = ...,
) -> None: ...
