from click.testing import CliRunner

from difftest.api.markdown import api_page
from difftest.cli.main import main


def test_the_command_writes_the_page():
    result = CliRunner().invoke(main, ["api"])
    assert result.exit_code == 0
    assert result.stdout == api_page()
