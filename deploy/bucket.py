"""Makes the bucket that PACKHOUSE_STORE names, on any S3 server, where it is not there yet; waits for the server."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError

from storage import s3place

SECONDS = float(os.environ.get("SECONDS", "120"))


async def make(place: s3place.Place) -> str:
    """Make the bucket; what there is to say about it. ClientError, BotoCoreError."""
    config = AioConfig(
        connect_timeout=3, read_timeout=20, retries={"total_max_attempts": 1}, s3={"addressing_style": place.addressing}
    )
    session = get_session()
    async with session.create_client(
        "s3", endpoint_url=place.endpoint, region_name=place.region, verify=place.ca, config=config
    ) as client:
        try:
            await client.head_bucket(Bucket=place.bucket)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            await client.create_bucket(Bucket=place.bucket)
            return f"the bucket {place.bucket} is made"
        return f"the bucket {place.bucket} is there"


async def main() -> None:
    place = s3place.parse(os.environ["PACKHOUSE_STORE"])
    end = time.monotonic() + SECONDS
    while True:
        try:
            print(await make(place))
            return
        except (ClientError, BotoCoreError) as error:
            if time.monotonic() > end:
                sys.exit(f"{place.endpoint} has not made the bucket {place.bucket} in {SECONDS:g} seconds: {error}")
        await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(main())
